"""What the benchmark of the cache on a GPU works with: a model, texts, a clock, shares of time."""

# B streams, T tokens of a context

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from transformers import LlamaConfig, LlamaForCausalLM

from .common import table
from .llm.kit import Kit
from .llm.model import load
from .llm.tasks import TASKS

Row = dict[str, Any]
SMALL = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.3,
         "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}  # fmt: skip
SHAPES: dict[str, Row] = {
    "": SMALL,
    "135M": {"vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536,
             "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
             "max_position_embeddings": 65536, "rope_theta": 100000.0},
    "8B": {"vocab_size": 4096, "hidden_size": 4096, "intermediate_size": 14336,
           "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
           "max_position_embeddings": 65536, "rope_theta": 500000.0},
}  # fmt: skip


def random_weights(shapes: str) -> Any:  # noqa: ANN401
    """A Llama of these shapes: in bfloat16 on the GPU, or the toy on the CPU."""
    torch.manual_seed(0)
    kind = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16 if shapes else torch.float32)
    try:
        with torch.device("cuda" if shapes else "cpu"):
            return LlamaForCausalLM(LlamaConfig(**SHAPES[shapes])).eval()
    finally:
        torch.set_default_dtype(kind)


class Bench:
    """A model, the sizes to try, and what was found."""

    def __init__(
        self, folder: Path | None, seconds: float, shapes: str = "", tokens: int = 8064
    ) -> None:
        self.began, self.seconds = time.perf_counter(), seconds
        self.until = seconds  # where the share of the part that runs ends
        self.tiny = folder is None and not shapes
        self.device = "cpu" if self.tiny else "cuda"
        self.tokenizer = None
        if folder is not None:
            self.model, self.tokenizer = load(folder, "cuda", "bfloat16")
        else:
            self.model = random_weights(shapes)
        self.T, self.long = (160, 200) if self.tiny else (tokens, 32768)
        self.batches = (2, 1, 3) if self.tiny else (128, 32, 1, 512, 1024)  # the first is judged
        self.wide = 2 if self.tiny else 16
        self.warm, self.steps = (2, 18) if self.tiny else (4, 64)
        self.found: dict[str, list[Row]] = {}
        self.made: dict[str, Any] = {}

    def left(self) -> float:
        """Seconds that remain of the share of this part."""
        return self.until - (time.perf_counter() - self.began)

    def rest(self) -> float:
        """Seconds that remain of all."""
        return self.seconds - (time.perf_counter() - self.began)

    def wait(self) -> None:
        """Until the device has done what it was asked."""
        if not self.tiny:
            torch.cuda.synchronize()

    def clock(self, run: Callable[[], Any], rounds: int = 5) -> float:
        """Seconds: the median of some rounds, after one that builds kernels."""
        times = []
        for _ in range(rounds + 1):
            self.wait()
            start = time.perf_counter()
            run()
            self.wait()
            times.append(time.perf_counter() - start)
        return median(times[1:])

    def busy(self, run: Callable[[], Any]) -> dict[str, float]:
        """Milliseconds of each kernel of a run, after one that builds kernels."""
        run()
        kind = ProfilerActivity.CPU if self.tiny else ProfilerActivity.CUDA
        with profile(activities=[kind]) as seen:
            run()
            self.wait()
        at = "self_cpu_time_total" if self.tiny else "self_device_time_total"
        return {one.key: getattr(one, at) / 1e3 for one in seen.key_averages()}

    def ids(self, n: int, T: int) -> Tensor:
        """N contexts of T tokens: lines drawn from 24, each from a seed of its own."""
        rows = []
        for seed in range(n):
            rng = np.random.default_rng(seed)
            if self.tokenizer is None:
                drawn = rng.integers(3, 60, (24, 11))[rng.integers(0, 24, T // 11 + 1)].ravel()
            else:
                drawn = np.array(TASKS["logs"](Kit(self.tokenizer, T + 128, rng)).ids)
            rows.append(torch.tensor(drawn[:T]))
        return torch.stack(rows).to(self.device)

    def run(self, name: str, part: Callable[[Bench], list[Row]], share: float) -> None:
        """One part, up to this share of all seconds; a failure is printed, the rest goes on."""
        start, self.until = time.perf_counter(), share * self.seconds
        try:
            rows = part(self)
            self.found[name] = rows
            keys = list(dict.fromkeys(key for row in rows for key in row))
            print(f"\n{name} ({time.perf_counter() - start:.0f} s)")
            table(keys, [[_show(row.get(key, "")) for key in keys] for row in rows])
        except Exception:
            print(f"\n{name} FAILED")
            traceback.print_exc()
        if not self.tiny:
            torch.cuda.empty_cache()
        print(end="", flush=True)

    @torch.no_grad()
    def forward(self, ids: Tensor, cache: Any, model: Any = None) -> Tensor:  # noqa: ANN401
        """The last logits of a prefill."""
        out = (model or self.model)(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        logits: Tensor = out.logits
        return logits


def _show(cell: Any) -> str:  # noqa: ANN401
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)
