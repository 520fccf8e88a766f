"""What the numbers of study ``gates`` say, and what they do not."""

from __future__ import annotations

from collections.abc import Mapping

from .result import Measure

Found = Mapping[str, Mapping[str, Measure]]  # row -> measure
LEARNED = 0.95  # recall of a gate that has found the first occurrences
FAILED = 0.6  # and of one that has not
PAPER = {"two": 1.0, "mlp": 0.372, "distilled": 1.0}
CHANCE = 1 / 16


def reading(found: Found) -> tuple[str, ...]:
    """The result in words; what is concluded is said only where the numbers bear it."""
    return (
        _table(found),
        _start(found),
        _signal(found),
        _streams(found),
        _others(found),
        "The gates are asked on the paper's even streams throughout; uneven ones are used in "
        "training only.",
        _noise(found),
    )


def _of(found: Found, row: str, measure: str = "recall") -> float:
    return found[row][measure].mean


def _told(found: Found, row: str, measure: str = "recall") -> str:
    return f"{_of(found, row, measure):.3f}"


def _learned(found: Found, *rows: str) -> bool:
    return all(_of(found, row) > LEARNED for row in rows)


def _table(found: Found) -> str:
    same = all(abs(_of(found, row) - paper) < 0.05 for row, paper in PAPER.items())
    key = abs(_of(found, "key") - 0.30) < 0.05
    return (
        f"{'The paper’s table comes out: two' if same else 'Two'} parameters recall "
        f"{_told(found, 'two')}, a large gate {_told(found, 'mlp')}, the same gate distilled to "
        f"the rule {_told(found, 'distilled')}. The paper has two numbers for a large gate: .372 "
        "in its table, .30 over five seeds in its text. "
        f"{'The second is what a' if key else 'A'} gate that sees the key alone recalls"
        f"{', ' if key else ' '}{_told(found, 'key')}: repeats of an item tie there, so 64 tokens "
        "hold 16 items."
    )


def _start(found: Found) -> str:
    ready = min(_of(found, row, "before") for row in ("two", "flat")) > LEARNED
    return (
        f"{'The two parameters did not have to be learned. ' * ready}Before the first step two "
        f"parameters recall {_told(found, 'two', 'before')}, and "
        f"{_told(found, 'flat', 'before')} when started at a = .1"
        f"{': any start with a above 0 ranks by novelty' * ready}. Started at a = -1 they "
        f"end at {_told(found, 'wrong')}. What training sets is the level, so that a gate above .5 "
        "means kept."
    )


def _signal(found: Found) -> str:
    able = _learned(found, "recipe") and _of(found, "neither") < FAILED
    said = "Nor is the large gate short of parameters or of features, but of a signal. "
    return (
        f"{said * able}The soft loss is as content with a quarter of each of four copies as with "
        "one whole copy. More than that, the even streams of the probe hide what a gate should "
        "find. When every item comes r times, keeping first occurrences more often at the same "
        "budget changes the part of items that is covered by (1-p)^(r-1) - (1-p)^(r-1) = 0, p "
        "being the part kept: an even policy is a saddle. An item that comes once is covered by a "
        "novel token or not at all, and that is a slope."
    )


def _streams(found: Found) -> str:
    only_even = _learned(found, "uneven", "recipe") and _of(found, "mlp") < FAILED
    said = (
        "That “an over-parameterized gate with the same novelty feature fails” (the paper, .372) "
        "holds on even streams only. "
    )
    return (
        f"{said * only_even}Let items come unequally often, and ask for each alike. From "
        f"{_told(found, 'uneven', 'before')} the same large gate comes to {_told(found, 'uneven')} "
        f"on the paper's loss, with {_of(found, 'uneven', 'kept'):.1f} gates above .5: the rest is "
        "rank alone. If the 64 tokens are also drawn by chance in training and the rest is really "
        "gone, while a token that is gone still hears what it would have brought, it recalls "
        f"{_told(found, 'recipe')} and keeps {_of(found, 'recipe', 'kept'):.1f}. Chance on even "
        f"streams gives {_told(found, 'chance')}, {found['chance']['recall'].sd:.2f} between seeds."
    )


def _others(found: Found) -> str:
    said = "It is not the sign of the feature that helps: told"
    told = said if _learned(found, "flipped") else "Told"
    return (
        f"{told} 1 - novelty, the gate comes to {_told(found, 'flipped')}. Two parameters that "
        f"start at a = -1 come to {_told(found, 'turned')} with both changes and "
        f"{_told(found, 'turned_soft')} with uneven streams alone. A gate taught the opposite of "
        f"the rule until it is sure of it comes to {_told(found, 'unlearned')}."
    )


def _noise(found: Found) -> str:
    near = min(_of(found, row) for row in ("key_01", "key_05")) < 2 * CHANCE
    return (
        "Where repeats differ by noise, a gate without novelty "
        f"{'recalls' if near else 'is not near chance (1 in 16) as the paper has it, but at'} "
        f"{_told(found, 'key_01')} to {_told(found, 'key_05')}."
    )
