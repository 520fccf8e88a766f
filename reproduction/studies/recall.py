"""The paper's first table: recall, and the slots it takes, for six methods.

A stream of 64 items, each seen 4 times with a little noise; at its end every item is queried once,
where the paper queries one: the means are the same, and ours have a smaller error. Keys have 32
numbers, the paper's "state dim". It leaves open the noise (.1), tau (.3), theta (.05) and the
temperature of the heavy hitter's scores (.145); these are values at which its numbers appear, and
the last one was chosen for that. Rows with the role "added" are not in the paper: the same methods
at better settings, and baselines of about the size of the cache. Their random features are the same
for all streams.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import sqrt
from time import perf_counter

from distinctkv.cache import Cache
from distinctkv.policy import Concentration

from ..baselines import (
    H2O,
    KNN,
    Attention,
    Based,
    Delta,
    Fourier,
    Kanerva,
    Recency,
    Redundancy,
    Ridge,
    Superposition,
)
from ..baselines.s4d import S4D, STATES, STEPS
from ..data import RecallTask
from ..result import Result, Setting
from . import Progress
from .findings import paragraphs
from .runner import FULL, Scale, finish, silent
from .sweep import Method, compare, every_item

TITLE = "Recall at the cost of distinct items"
QUESTION = (
    "A stream names 64 items, each four times, 256 tokens in all, and then asks for the class of "
    "an item. Which memories know it, and how much do they hold to know it?"
)
TASK = RecallTask()
EPISODES = 300
BUDGET = 64
TAU = 0.3
# Bytes of a key and a one-hot value for every item; the most features and rows that need no more.
LEAST = 4 * TASK.n_items * (TASK.width + TASK.n_classes)
FEATURES, ROWS = 96, 36
MEASURES = ("recall", "slots", "bytes")


def make_s4d() -> S4D:
    """The S4D layer trained on this task."""
    return S4D(TASK)


METHODS = (
    Method(
        "superposition", "Fixed state (sum)", "sum of k vᵀ, no decay", Superposition, role="paper"
    ),
    Method("s4d", "S4D layer, trained", f"{STEPS} steps, {STATES} states a channel", make_s4d),
    Method("attention", "Full attention", "keeps every token", Attention, role="paper"),
    Method("knn", "kNN cache", "keeps every token, 1 neighbour", KNN, role="paper"),
    Method("recency", "Recency", f"B={BUDGET}", lambda: Recency(BUDGET), role="paper"),
    Method(
        "h2o",
        "Heavy hitter (H2O)",
        f"B={BUDGET}, scores at theta .145, no recent window",
        lambda: H2O(BUDGET, score_theta=0.145, recent=0),
        role="paper",
    ),
    Method(
        "h2o_tuned",
        "H2O, tuned",
        f"B={BUDGET}, scores at theta .1, no recent window",
        lambda: H2O(BUDGET, score_theta=0.1, recent=0),
    ),
    Method(
        "h2o_published",
        "H2O, published form",
        f"B={BUDGET}, scores at theta .1, {BUDGET // 2} recent",
        lambda: H2O(BUDGET, score_theta=0.1),
    ),
    Method(
        "redundancy",
        "Redundancy eviction",
        f"B={BUDGET}, of the two most similar tokens the older leaves",
        lambda: Redundancy(BUDGET),
    ),
    Method("delta", "Delta rule", "a state of the same size, rate .1", Delta),
    Method("ridge", "Ridge state", "penalty .1, sums of k kᵀ and k vᵀ", Ridge),
    Method(
        "fourier",
        "Fourier state",
        f"{FEATURES} random features, scale 2.5",
        lambda: Fourier(FEATURES),
    ),
    Method(
        "based",
        "Based state",
        "exp cut off after its square, keys projected to 16",
        lambda: Based(width=16),
    ),
    Method(
        "kanerva",
        "Kanerva state",
        f"{ROWS} rows and their covariance, noise .1",
        lambda: Kanerva(ROWS),
    ),
    Method(
        "dp",
        "Distinct items (ours)",
        f"tau {TAU}, no budget",
        lambda: Cache(Concentration.fixed(tau=TAU)),
        role="cache",
    ),
)


def settings(scale: Scale) -> Mapping[str, Setting]:
    """Every number that decides the result, the seeds apart."""
    return {
        "scale": scale.name,
        "episodes": scale.of(EPISODES),
        **asdict(TASK),
        "queries": TASK.n_items,
        "tau": TAU,
        "budget": BUDGET,
        "read_theta": 0.05,
    }


def run(seeds: Sequence[int], scale: Scale = FULL, progress: Progress = silent) -> Result:
    """Every method on the same streams: recall of the answer, slots and bytes at the end."""
    started = perf_counter()
    n_episodes = scale.of(EPISODES)
    curves = compare(METHODS, every_item(TASK), seeds, n_episodes, progress)
    rows = tuple(curve.row(MEASURES) for curve in curves.values())
    state = curves["superposition"].mean("recall")
    result = Result(
        study="recall",
        title=TITLE,
        question=QUESTION,
        findings=paragraphs(
            "recall",
            rows,
            items=TASK.n_items,
            least=LEAST,
            features=FEATURES,
            kanerva_rows=ROWS,
            guess=1 / TASK.n_classes,
            episodes=EPISODES,
            binomial=sqrt(state * (1 - state) / EPISODES),
        ),
        rows=rows,
        settings=settings(scale),
        seeds=tuple(seeds),
        headings={"table": f"Recall, slots and bytes; a seed is the mean of {n_episodes} episodes"},
    )
    return finish(result, perf_counter() - started)
