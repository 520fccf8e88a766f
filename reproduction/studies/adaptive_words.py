"""What the numbers of study ``adaptive`` say, and what they do not."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from .contenders import STATE_DECAY, STREAMS
from .result import Measure

Found = Mapping[tuple[str, str], Mapping[str, Measure]]  # by table and row


def reading(found: Found) -> tuple[str, ...]:
    """The result in words."""
    of, gains = partial(told, found), partial(level, found)
    ours, decay = (found["alternating", name] for name in ("surprise", "decay"))
    steady = found["gain", "steady_b18"]["gain"]
    easy, hard = STREAMS["alternating"].lengths[:2]
    return (
        "Counted as the paper counts, at the ends of phases, the adaptive budget recalls "
        f"{of('alternating', 'surprise', 'phase end')} slots, and the fixed budget of 18 recalls "
        f"{of('alternating', 'b18', 'phase end')}.",
        f"In that average every phase counts once, but a hard one lasts {hard} tokens and an easy "
        f"one {easy}. Counted at every token the adaptive budget holds "
        f"{ours['per token'].mean:.1f} slots, at its peak {ours['peak'].mean:.0f}. Fixed budgets "
        f"hold as many between 22 and 24: {of('alternating', 'b22')} and "
        f"{of('alternating', 'b24')}. At its own slots per token it gains "
        f"{gains('alternating', 'fixed')} a fixed budget, and {gains('alternating', 'expiry')} "
        "slots that expire when idle, which need neither budget nor temperature (± a standard "
        "error).",
        "Where easy and hard phases last equally long, the two ways of counting are close. There, "
        f"at equal slots per token, it gains {gains('equal', 'fixed')} a fixed budget, and "
        f"{gains('equal', 'expiry')} slots that expire.",
        "Under steady demand the paper calls a matched fixed budget just as good. Here the "
        f"adaptive one recalls {compared(steady)} it: {of('steady', 'surprise')} slots "
        f"per token, and {of('steady', 'b18')}. It has cooled before a phase of 18 items ends, "
        f"and is left with {found['steady', 'surprise']['phase end'].mean:.1f} slots. At equal "
        f"slots per token it gains {gains('steady', 'fixed')} a fixed budget, and "
        f"{gains('steady', 'expiry')} slots that expire.",
        "The paper's floor is a fixed state that forgets nothing, "
        f"{found['alternating', 'superposition']['recall'].mean:.3f}. The same state with a decay "
        f"of {STATE_DECAY} recalls {decay['recall'].mean:.3f} in {decay['bytes'].mean:,.0f} bytes; "
        f"the adaptive cache held {ours['bytes'].mean:,.0f} on average.",
        "The paper gives no setting here but the budgets. Tau and the numbers of the adaptive "
        "budget were searched for until its table came out, so that these rows agree is no "
        "evidence for it.",
    )


def told(found: Found, stream: str, name: str, cost: str = "per token") -> str:
    """Recall of a contender, and its slots."""
    one = found[stream, name]
    return f"{one['recall'].mean:.3f} at {one[cost].mean:,.1f}"


def level(found: Found, stream: str, family: str) -> str:
    """The gain at equal slots per token, with its error, and in words."""
    gain = found["level", f"{stream}_{family}"]["gain"]
    return f"{gain.mean:+.3f} ± {gain.error:.3f}, {compared(gain)}"


def compared(gain: Measure) -> str:
    """More or less than, or as much as, by the margin of the mean.

    >>> compared(Measure(0.02, 0.01, 4)), compared(Measure(0.005, 0.01, 4))
    ('more than', 'as much as')
    """
    if abs(gain.mean) <= gain.margin:
        return "as much as"
    return "more than" if gain.mean > 0 else "less than"
