"""Read the beginning of files with a language model; print how much of each its cache keeps.

    python examples/kept.py MODEL app.log novel.txt

One threshold serves all files. A log repeats itself, so few of its tokens open a slot; far more
tokens of a novel do. With SmolLM2-135M-Instruct, the log of ``examples/app_log.py`` and the novel
Treasure Island:

    reading 2,048 tokens of app.log
    reading 2,048 tokens of novel.txt
    file           tokens   kept   cache MB   full cache MB
    app.log         2,048    16%       18.8            94.4
    novel.txt       2,048    47%       49.2            94.4
"""

import argparse
import json
from pathlib import Path

try:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
except ImportError:
    raise SystemExit("this example needs more: pip install '.[hf]'") from None

from distinctkv.hf import distinct_cache


def main(arguments: list[str] | None = None) -> None:
    """Read each file into a cache of its own."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", help="folder or name of the model")
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--threshold", type=float, help="novelty that opens a slot")
    parser.add_argument("--tokens", type=int, default=2048, help="tokens to read of each file")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    options = parser.parse_args(arguments)
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype="auto").eval()
    rows = []
    for file in options.files:
        text = file.read_text(encoding="utf-8-sig", errors="replace")[: 8 * options.tokens]
        ids = tokenizer(text, return_tensors="pt").input_ids[:, : options.tokens]
        print(f"reading {ids.shape[1]:,} tokens of {file.name}", flush=True)
        cache = distinct_cache(model, threshold=options.threshold)
        with torch.no_grad():
            model(ids, past_key_values=cache, logits_to_keep=1)
        held = cache.summary()
        rows.append((file.name, held.tokens, held.kept, held.bytes, held.full))
    print(f"{'file':<14} {'tokens':>6} {'kept':>6} {'cache MB':>10} {'full cache MB':>15}")
    for name, tokens, kept, held_bytes, full in rows:
        print(f"{name:<14} {tokens:>6,} {kept:>6.0%} {held_bytes / 1e6:>10.1f} {full / 1e6:>15.1f}")
    if options.json:
        fields = ("file", "tokens", "kept", "bytes", "full_bytes")
        text = json.dumps([dict(zip(fields, row, strict=True)) for row in rows], indent=1)
        options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
