"""Answer a question about a long file with a cache that is smaller where the file repeats itself.

    python examples/generate.py MODEL FILE "What is the maintenance code?" --kept 0.25

MODEL is one that transformers can load: Llama, Mistral, Qwen2, Qwen3, Phi3 or Gemma. With
SmolLM2-135M-Instruct and the log of ``docs/learn/language_model.md`` it prints:

    reading 2,561 tokens
    2560 tokens in 601.8 slots a head and a window of 32: 24.8% kept
    33,794,664 bytes of 117,964,800, 1,498,328 of them for the metric
    The maintenance code for tonight is 7391.
"""

import argparse
from pathlib import Path

try:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
except ImportError:
    raise SystemExit("this example needs more: pip install '.[hf]'") from None

from distinctkv.hf import captured, distinct_cache


def main(arguments: list[str] | None = None) -> None:
    """Read file and question in chunks, then generate."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("file", type=Path)
    parser.add_argument("question")
    parser.add_argument("--kept", type=float, default=0.25, help="part of the tokens, up to 1")
    parser.add_argument("--chunk", type=int, default=1024, help="tokens at a time")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of the answer")
    options = parser.parse_args(arguments)
    try:
        text = options.file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        parser.error(f"{options.file} cannot be read: {error}")
    if not text or options.chunk < 1 or not 0 < options.kept <= 1:
        parser.error("the file must not be empty, --chunk be 1 or more, --kept lie in (0, 1]")

    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype="auto").to(device).eval()
    cache = distinct_cache(model, kept=options.kept)

    prompt, framed = f"{text}\n\n{options.question}\n", bool(tokenizer.chat_template)
    if framed:  # a model that was taught to chat answers in its own frame only
        said = [{"role": "user", "content": prompt}]
        prompt = tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
    ids = tokenizer(prompt, return_tensors="pt", add_special_tokens=not framed).input_ids.to(device)
    print(f"reading {ids.shape[1]:,} tokens", flush=True)
    with torch.no_grad():
        for chunk in ids[:, :-1].split(options.chunk, dim=1):
            model(chunk, past_key_values=cache, logits_to_keep=1)
    print(*str(cache.summary()).splitlines()[:2], sep="\n")  # a line for each layer follows these
    most = {"max_new_tokens": options.tokens, "attention_mask": torch.ones_like(ids)}
    with captured(model):  # on a GPU, steps as one graph
        answer = model.generate(ids, past_key_values=cache, do_sample=False, **most)
    print(tokenizer.decode(answer[0, ids.shape[1] :], skip_special_tokens=True))


if __name__ == "__main__":
    main()
