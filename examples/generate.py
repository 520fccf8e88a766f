"""Answer a question about a long file with a cache that is smaller where the file repeats itself.

    python examples/generate.py MODEL FILE "What was the last error?" --threshold 1.0

MODEL is a folder or name that transformers can load: Llama, Mistral, Qwen2, Qwen3, Phi3 or Gemma.
Needs ``pip install 'distinctkv[hf]'``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from distinctkv.hf import distinct_cache


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the file in chunks, then generate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("file", type=Path)
    parser.add_argument("question")
    parser.add_argument("--threshold", type=float, default=1.0, help="less keeps more")
    parser.add_argument("--chunk", type=int, default=1024, help="tokens of the file at a time")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of the answer")
    options = parser.parse_args(arguments)

    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype="auto").to(device).eval()
    cache = distinct_cache(model, options.threshold)

    context = tokenizer(options.file.read_text(), return_tensors="pt").input_ids.to(device)
    with torch.no_grad():
        for chunk in context.split(options.chunk, dim=1):
            model(chunk, past_key_values=cache, logits_to_keep=1)
    print(cache.summary())

    question = tokenizer("\n\n" + options.question, return_tensors="pt").input_ids.to(device)
    ids = torch.cat((context, question), dim=1)
    answer = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        past_key_values=cache,
        max_new_tokens=options.tokens,
        do_sample=False,
    )
    print(tokenizer.decode(answer[0, ids.shape[1] :], skip_special_tokens=True))


if __name__ == "__main__":
    main()
