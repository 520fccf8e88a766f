"""The paper's comparison with offline clustering: recall against the number of slots, M.

k-means groups the keys of a whole stream into M groups, and a query is read over their means. The
paper says neither how it starts nor how often; one start at random tokens gives its number. We add
the usual start (k-means++) and ten tries, of which the fit with the smallest error counts, the
default of many libraries. The stream is that of study ``recall``, with a query for every item.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from time import perf_counter

from distinctkv.cache import Cache
from distinctkv.policy import Concentration, Merge
from distinctkv.rule import Floats

from ..baselines import KMeans
from ..data import RecallTask
from ..result import Result, Role, Row, Setting
from . import Progress
from .findings import paragraphs
from .runner import FULL, Scale, finish, silent
from .sweep import CACHE, TAUS, Curve, Method, comma_list, compare, every_item

TITLE = "Online allocation against offline clustering"
QUESTION = (
    "k-means sees the whole stream before it places M slots; the cache sees a token at a time and "
    "is not told M. Which recalls more from as many slots?"
)
HEADINGS = {
    "points": "64 slots, as many as there are items",
    "sizes": "Recall from fewer slots, and from more",
    "centroid": "Slots with first keys beside slots whose keys move to the mean of their tokens",
}
TASK = RecallTask()
EPISODES, CENTROID_EPISODES = 50, 5
SIZES = (16, 32, 48, 64, 80, 96, 128)
TAU = 0.3
SHOWN = (16, 48, 80, 128)
# Low noise, as above; and repeats so noisy that they lie near the threshold, and many of them.
CENTROID = {
    "low": ("Low noise", TASK, TAU),
    "near": ("Near the threshold", replace(TASK, noise=0.7, repeats=32), 0.4),
}


def _fit(name: str, label: str, start: str, tries: int, role: Role = "added") -> Method:
    how = start if start == "k-means++" else "random tokens"
    setting = f"M={{}}, started at {how}, {tries} {'try' if tries == 1 else 'tries'}"
    return Method(name, label, setting, lambda size: KMeans(int(size), start, tries), SIZES, role)


FITS = (
    _fit("random", "k-means", "random", 1, "paper"),
    _fit("random_10", "k-means, 10 tries", "random", 10),
    _fit("spread", "k-means++", "k-means++", 1),
    _fit("spread_10", "k-means++, 10 tries", "k-means++", 10),
)
# What k-means keeps of a group, in slots that open on novelty.
MEAN = Method(
    "dp_mean",
    "Ours, mean values",
    "tau {}, values averaged",
    lambda tau: Cache(Concentration.fixed(tau), merge=Merge(value="mean")),
    TAUS,
)
MEAN_KEY = Merge(key="mean")
Curves = Mapping[str, Curve]


def settings(scale: Scale) -> Mapping[str, Setting]:
    """Every number that decides the result, the seeds apart."""
    return {
        "scale": scale.name,
        "episodes": scale.of(EPISODES),
        **asdict(TASK),
        "queries": "every item once",
        "M": comma_list(SIZES),
        "tau": comma_list(TAUS),
        "read_theta": 0.05,
    }


def run(seeds: Sequence[int], scale: Scale = FULL, progress: Progress = silent) -> Result:
    """Every start at every M, and the cache at every threshold, on the same streams."""
    started = perf_counter()
    methods = (*FITS, MEAN, CACHE)
    curves = compare(methods, every_item(TASK), seeds, scale.of(EPISODES), progress)
    rows = (*point_rows(curves), *size_rows(curves), *centroid_rows(seeds, scale))
    result = Result(
        study="kmeans",
        title=TITLE,
        question=QUESTION,
        findings=paragraphs("kmeans", rows, items=TASK.n_items),
        rows=rows,
        settings=settings(scale),
        seeds=tuple(seeds),
        series=tuple(curve.series("slots") for curve in curves.values()),
        headings=HEADINGS,
    )
    return finish(result, perf_counter() - started)


def point_rows(curves: Curves) -> Iterator[Row]:
    """At M = K, and the cache at one threshold."""
    fits = [(fit.name, TASK.n_items) for fit in FITS]
    for name, size in (*fits, ("dp_mean", TAU), ("dp", TAU)):
        yield curves[name].row(("recall", "slots", "peak"), "points", size)


def size_rows(curves: Curves) -> Iterator[Row]:
    """Below and above K; the cache is interpolated between its thresholds."""
    for curve in curves.values():
        recalls = {f"M={size}": recall_at(curve, size) for size in SHOWN}
        yield replace(curve.method, setting="").row(recalls, "sizes")


def centroid_rows(seeds: Sequence[int], scale: Scale) -> Iterator[Row]:
    """Recall that the mean key gains on the first, and the slots of each, on the same streams."""
    for name, (label, task, tau) in CENTROID.items():
        methods = (
            Method("first", label, "", lambda tau=tau: Cache(Concentration.fixed(tau))),
            Method(
                "mean", label, "", lambda tau=tau: Cache(Concentration.fixed(tau), merge=MEAN_KEY)
            ),
        )
        found = compare(methods, every_item(task), seeds, scale.of(CENTROID_EPISODES))
        first, mean = (found[key].found for key in ("first", "mean"))
        numbers = {
            "gain of the mean": (mean["recall"] - first["recall"])[0],
            "slots, first": first["slots"][0],
            "slots, mean": mean["slots"][0],
            "first over mean": (first["slots"] / mean["slots"])[0],
        }
        setting = f"noise {task.noise:g}, {task.repeats} repeats, tau {tau:g}"
        yield Method(name, label, setting, Cache).row(numbers, "centroid")


def recall_at(curve: Curve, size: int) -> Floats:
    """Recall of k-means that is told M, or of the cache at as many slots, for each seed."""
    if curve.method in FITS:
        return curve.scores("recall", size)
    return curve.at(size)
