"""Training on one device or several, with checkpoints from which a stopped run goes on."""

# B sequences, L tokens

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save as pack
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from distinctkv import snapshot
from distinctkv.nn import GatedDeltaNet, HybridBlock, HybridLM, Mamba2
from distinctkv.nn.train import Captured, CollapseMonitor, Learner


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a run is trained. The rate rises, stays to ``hold`` of the steps, then falls to 2 %."""

    steps: int
    rate: float
    batch: int = 16
    length: int = 4096
    warm: int = 100
    hold: float = 0.5
    every: int = 50  # steps between two lines of the log
    save_every: int = 500

    def rate_at(self, step: int) -> float:
        """The rate of this step, counted from 0."""
        warm = min(1.0, (step + 1) / max(1, self.warm))
        left = (self.steps - step) / max(1.0, self.steps * (1 - self.hold))
        return self.rate * warm * (0.02 + 0.98 * min(1.0, left))


class Batches:
    """Random places of a text that lies on the device; the seed and the step alone decide."""

    def __init__(self, text: np.ndarray, seed: int, schedule: Schedule, device: str) -> None:
        self.book = text
        self.text = torch.from_numpy(np.array(text, copy=True)).to(device)
        self.seed, self.schedule = seed, schedule
        self.reach = torch.arange(schedule.length + 1, device=device)

    def at(self, step: int, rank: int = 0, world: int = 1) -> tuple[Tensor, Tensor]:
        """Tokens and targets (B, L) of a step, or the part of this rank."""
        rng = np.random.default_rng((self.seed, step))
        last = len(self.text) - self.schedule.length
        starts = rng.integers(0, last, self.schedule.batch)[rank::world]
        rows = self.text[torch.from_numpy(starts).to(self.text.device)[:, None] + self.reach].long()
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the log of a run."""

    step: int
    loss: float
    seconds: float
    slots: dict[str, float]


@contextmanager
def group() -> Iterator[tuple[int, int]]:
    """Rank and number of processes, as ``torchrun`` has started them; one of one without it."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield 0, 1
        return
    distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        yield distributed.get_rank(), world
    finally:
        distributed.destroy_process_group()


def compile_blocks(model: HybridLM) -> None:
    """Compile each block by itself: blocks of one kind then share their code.

    Whole-model compilation takes minutes. Blocks with long Python loops, which would be unrolled,
    stay as they are: Gated DeltaNet and the learned gate.
    """
    torch._dynamo.config.recompile_limit = 64  # one for each kind of block, trained and tuned
    torch._dynamo.config.accumulated_recompile_limit = 512
    for block in model.blocks:
        assert isinstance(block, HybridBlock)
        loops = isinstance(block.mixer, GatedDeltaNet) or getattr(block.mixer, "gate", None)
        if not loops:
            block.compile(dynamic=False)


def compile_for_measures(model: HybridLM) -> None:
    """Compile the blocks of Mamba-2 alone: the others are read in many ways, once each."""
    for block in model.blocks:
        assert isinstance(block, HybridBlock)
        block._compiled_call_impl = None
        if isinstance(block.mixer, Mamba2):
            block.compile(dynamic=False)


def train(
    model: HybridLM,
    text: np.ndarray,
    schedule: Schedule,
    seed: int,
    *,
    path: Path | None = None,
    kind: type[Batches] = Batches,
    ranks: tuple[int, int] = (0, 1),
    log: Callable[[Line], None] = lambda line: None,
    stop: Callable[[], bool] = lambda: False,
) -> list[Line]:
    """Train to the end of the schedule; returns the log.

    With ``path`` the state is written there every ``save_every`` steps and when ``stop`` says so,
    and a run that finds one goes on from it. A run that was stopped ends early.
    """
    rank, world = ranks
    place = next(model.parameters()).device
    batches = kind(text, seed, schedule, str(place))
    trained: nn.Module = DistributedDataParallel(model) if world > 1 else model
    chance = math.log(model.embed.num_embeddings)  # the loss of one who knows nothing
    learner, monitor = Learner(trained), CollapseMonitor(model, chance)
    done, lines = _resume(path, model, learner, place)
    # Thousands of small launches, as Gated DeltaNet's loop over chunks makes, become one graph.
    graph = place.type == "cuda" and any(isinstance(m, GatedDeltaNet) for m in model.mixers)
    update = Captured(learner, model) if graph and world == 1 else learner
    model.train()
    started = perf_counter() - (lines[-1].seconds if lines else 0.0)
    for step in range(done, schedule.steps):
        learner.set_rate(schedule.rate_at(step))
        loss = update(*batches.at(step, rank, world))
        last = step + 1 == schedule.steps
        if (step + 1) % schedule.every == 0 or last:
            value = loss.item()
            slots = monitor.update(step, value, schedule.length)
            lines.append(Line(step + 1, value, perf_counter() - started, slots))
            log(lines[-1])
        stopped = stop()
        due = (stopped or (step + 1) % schedule.save_every == 0) and not last
        if path is not None and rank == 0 and due:
            _save(path, model, learner, step + 1, lines)
        if stopped:
            break
    return lines


def _save(path: Path, model: nn.Module, learner: Learner, step: int, lines: list[Line]) -> None:
    tensors = {f"model/{name}": tensor for name, tensor in model.state_dict().items()}
    for number, moments in learner.optimiser.state_dict()["state"].items():
        tensors |= {f"optimiser/{number}/{name}": tensor for name, tensor in moments.items()}
    about = {"step": str(step), "lines": json.dumps([astuple(line) for line in lines])}
    held = {name: tensor.contiguous() for name, tensor in tensors.items()}
    snapshot.replace(path, pack(held, about))


def _resume(
    path: Path | None, model: nn.Module, learner: Learner, place: torch.device
) -> tuple[int, list[Line]]:
    """The steps done and their log, with model and optimiser as they were then."""
    if path is None or not path.exists():
        return 0, []
    with safe_open(path, "pt", device=str(place)) as file:
        about = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    weights = {name[6:]: part for name, part in tensors.items() if name.startswith("model/")}
    model.load_state_dict(weights)
    state: dict[int, dict[str, Tensor]] = {}
    for name, part in tensors.items():
        if name.startswith("optimiser/"):
            _, number, moment = name.split("/")
            state.setdefault(int(number), {})[moment] = part
    learner.optimiser.load_state_dict({**learner.optimiser.state_dict(), "state": state})
    return int(about["step"]), [Line(*line) for line in json.loads(about["lines"])]
