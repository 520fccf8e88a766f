"""The paper's end-to-end run (section 3.1.6): five models in one table, and fair rivals.

A stream names 128 of 512 keys, each with one of 32 classes, four times each: 512 tokens. Tables of
keys and classes are trained with the rest. The parameter counts are the paper's, exactly; what has
these counts in `lookup_models` need not be what its authors ran. It leaves open the training: 16
streams a step with 32 questions each, Adam, and the steps given with each row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .claims import check
from .device import Told, device, n_seeds, result_of
from .recall import NOTICED, compared
from .result import Measure, Result, Role, Row, Setting
from .study import FULL, Progress, Scale, silent

TITLE = "Five models in one run"
QUESTION = (
    "A stream of 512 tokens binds 128 keys to 32 classes. Trained end to end, which models can say "
    "the class of a key, and how many parameters and bytes do they hold?"
)
HEADINGS = {"table": "Recall, and what is held: slots and bytes of a stream, parameters"}
ITEMS, REPEATS, CLASSES = 128, 4, 32
LENGTH = ITEMS * REPEATS
KEYS = 512  # there are, of which a stream has 128
WIDTH = 128
TAU = 0.5
STREAMS, QUERIES = 16, 32  # in a step
BATCHES = 10  # of 16 streams, with 32 questions each, to measure on
LEARNED = 0.9  # recall above which a model has learned the task
MEASURES = ("recall", "slots", "bytes", "parameters")


@dataclass(frozen=True, slots=True)
class Case:
    """A model, and how long it is trained."""

    name: str
    label: str
    model: str
    steps: int
    note: str
    rate: float = 1e-3
    role: Role = "paper"


CASES = (
    Case("guess", "A guess", "Commonest", 0, "the commonest class", role="added"),
    Case("ssm", "Fixed-state SSM", "FixedState", 200, "h = a h + key + class"),
    Case("bound", "Fixed state, bound", "BoundState", 200, "h = h + key * class", role="added"),
    Case("attention", "Full attention", "Attention", 40, "keeps every token", 2e-3),
    Case("saliency", "Learned saliency", "Saliency", 40, "M=128, a network on the key", 2e-3),
    Case("rule", "Distinct items, rule (ours)", "Rule", 40, f"tau {TAU}", 2e-3, "cache"),
    Case("gate", "Novelty gate (ours)", "Novelty", 40, "M=128, from a=5, b=.5", 2e-3, "cache"),
    Case("linear", "Linear attention", "LinearAttention", 200, "sum of k vᵀ", role="added"),
    Case(
        "cosine",
        "Linear attention on cosines",
        "CosineAttention",
        150,
        "as many bytes as 128 slots",
        2e-3,
        "added",
    ),
)


def settings(scale: Scale) -> Mapping[str, Setting]:
    """Every number that decides the result, the seeds apart."""
    return {
        "scale": scale.name,
        "n_items": ITEMS,
        "repeats": REPEATS,
        "n_classes": CLASSES,
        "keys_there_are": KEYS,
        "width": WIDTH,
        "tau": TAU,
        "streams_per_step": STREAMS,
        "queries_per_stream": QUERIES,
        "streams_to_measure": STREAMS * BATCHES,
        "seeds_used": n_seeds(scale),
        "device": device(),
    }


def run(seeds: Sequence[int], scale: Scale = FULL, progress: Progress = silent) -> Result:
    """Train every model from every seed."""

    def tell(used: tuple[int, ...]) -> Told:
        rows: list[Row] = []
        for case in CASES:
            found = []
            for seed in used:
                found.append(measure(case, seed))
                progress(len(rows) * len(used) + len(found), len(CASES) * len(used))
            rows.append(row(case, found))
        return Told(rows, reading({one.name: one for one in rows}), HEADINGS)

    return result_of("five_models", seeds, scale, tell)


def measure(case: Case, seed: int) -> tuple[float, float, float, float]:
    """Recall, slots, bytes and parameters of a model trained from one seed."""
    import torch

    from . import lookup, lookup_models

    where = device()
    torch.manual_seed(seed)
    model = getattr(lookup_models, case.model)().to(where)
    if case.steps:
        lookup.train(model, seed, case.steps, case.rate, where)
    size = sum(part.numel() for part in model.parameters())
    return (*lookup.score(model, seed, BATCHES, where), size)


def row(case: Case, found: Sequence[tuple[float, ...]]) -> Row:
    """Means over seeds."""
    measures = {
        name: Measure.of(column)
        for name, column in zip(MEASURES, zip(*found, strict=True), strict=True)
    }
    training = f"{case.steps} steps at {case.rate:g}" if case.steps else "not trained"
    return Row(case.name, case.label, measures, f"{case.note}; {training}", case.role)


def reading(rows: Mapping[str, Row]) -> tuple[str, ...]:
    """What the numbers say, and what they do not."""

    def mean(name: str, measure: str = "recall") -> float:
        return rows[name].measures[measure].mean

    def size(name: str) -> str:
        return f"{mean(name, 'bytes'):,.0f} bytes"

    return (
        f"{_beside_the_paper(rows)} The rule recalls {mean('rule'):.3f} from "
        f"{mean('rule', 'slots'):.0f} slots and the novelty gate {mean('gate'):.3f}, where "
        f"attention recalls {mean('attention'):.3f} from {mean('attention', 'slots'):.0f}.",
        f"{_of_saliency(rows['saliency'].measures['recall'])} Study gates shows what makes such a "
        "gate learn.",
        f"{_of_the_fixed_state(rows)} A vector of {size('bound')} that multiplies key and class "
        f"before it adds recalls {mean('bound'):.3f}.",
        f"Linear attention has {mean('linear', 'parameters'):,.0f} parameters and a matrix of "
        f"{size('linear')}, where the cache takes {size('rule')}. It recalls {mean('linear'):.3f}. "
        f"On cosines of its keys, with no more parameters and {size('cosine')}, it recalls "
        f"{mean('cosine'):.3f}, {compared(rows['cosine'], rows['rule'])} the cache.",
        _of_bytes(rows),
        "Slots of a state are its rows, as in the paper. Bytes are those of the stream's memory in "
        "32-bit numbers; parameters are not among them.",
    )


def _beside_the_paper(rows: Mapping[str, Row]) -> str:
    claims = check("five_models", tuple(rows.values()))
    wrong = [f"{one.measure} of {rows[one.row].label}" for one in claims if not one.passes]
    if wrong:
        told = ", ".join(wrong)
        return f"Of the paper's {len(claims)} numbers {len(wrong)} do not come out: {told}."
    return (
        "The five rows come out as in the paper, with its parameter counts to the last number. "
        "The counts do not tell what the models are; ours are some that have them."
    )


def _of_saliency(recall: Measure) -> str:
    whole = chance_of_whole_groups()
    why = (
        f"it scores all tokens of a key alike, so {ITEMS} tokens hold {ITEMS // REPEATS} keys, and "
        f"one in {CLASSES} of the other answers is right by chance: {whole:.3f}."
    )
    if abs(recall.mean - whole) <= NOTICED + recall.margin:
        return f"The saliency gate's {recall.mean:.3f} is arithmetic: {why}"
    return f"The saliency gate recalls {recall.mean:.3f}, which is not what one would expect: {why}"


def _of_the_fixed_state(rows: Mapping[str, Row]) -> str:
    recall, guess = (rows[name].measures["recall"].mean for name in ("ssm", "guess"))
    told = (
        f"It adds key and class, so it cannot tell which went with which; its {recall:.3f} is "
        f"{compared(rows['ssm'], rows['guess'])} one gets by saying the commonest class of the "
        f"stream, {guess:.3f}."
    )
    if recall <= 2 / CLASSES:
        return (
            f"That the fixed state is near chance ({1 / CLASSES:.3f}) says little about fixed "
            f"states. {told}"
        )
    return f"The fixed state recalls more than chance ({1 / CLASSES:.3f}). {told}"


def _of_bytes(rows: Mapping[str, Row]) -> str:
    """What the cache saves, if attention has anything to save it against."""

    def does(one: str, other: str) -> bool:
        """Whether a row recalls no less than another, and holds no more."""
        less = rows[one].measures["bytes"].mean <= rows[other].measures["bytes"].mean
        return less and compared(rows[one], rows[other]) != "less than"

    best = rows["attention"].measures["recall"].mean
    if best <= LEARNED:
        return f"Attention itself recalls {best:.3f}; what the cache saves cannot be said."
    if not does("rule", "attention"):
        return "So here the cache does not do with fewer bytes what attention does."
    if does("cosine", "rule"):
        return (
            "So here the cache saves bytes against attention, and not against a fixed state that "
            "can bind. That state had to be made large enough for the number of keys beforehand."
        )
    return (
        "So here the cache saves bytes against attention, and no fixed state did as well in them."
    )


def chance_of_whole_groups() -> float:
    """Recall of what keeps all tokens of a quarter of the keys, and guesses at the rest.

    >>> round(chance_of_whole_groups(), 4)
    0.2734
    """
    return 1 / REPEATS + (1 - 1 / REPEATS) / CLASSES
