"""What study ``stress`` advises, computed from what it measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from distinctkv.policy import Concentration

from .result import Measure
from .strains import ALL, MEANT, PLAIN, SAFE, STRAINS, TAUS, VALUES, Strain, at_tau

CLOSE = 0.01  # recall for which we do not pay slots
# strain, stream and setting
Place = tuple[str, float, str]
Found = Mapping[Place, Mapping[str, Measure]]


def choose(found: Found, strain: Strain, number: float) -> str:
    """The setting with the fewest slots of those that recall about the most; of equals the first.

    Slots count in hundredths of an item, and fewer than one for each item are no saving.
    """
    options = {
        setting: found[strain.name, number, setting]
        for setting in strain.settings
        if setting not in (SAFE, ALL)
    }
    best = max(option["recall"].mean for option in options.values())
    good = [name for name in options if options[name]["recall"].mean >= best - CLOSE]
    return min(good, key=lambda name: max(1.0, round(options[name]["slots/item"].mean, 2)))


@dataclass(frozen=True, slots=True)
class Words:
    """Numbers as a sentence wants them: of a strain, a stream and a setting."""

    found: Found

    def both(self, *place: *Place) -> str:
        """Recall, and the slots it took."""
        return f"{self.recall(*place)} from {self.slots(*place)}"

    def recall(self, *place: *Place) -> str:
        """Recall alone."""
        return f"{self.found[place]['recall'].mean:.2f}"

    def slots(self, *place: *Place) -> str:
        """Slots per item."""
        return f"{self.found[place]['slots/item'].mean:.2f}"

    def speed(self, *place: *Place) -> str:
        """Tokens a second."""
        return f"{self.found[place]['tokens/s'].mean:,.0f}"


def reading(found: Found) -> tuple[str, ...]:
    """Which setting to choose, and what it is chosen on."""
    words = Words(found)
    return (
        "In bold: the setting to choose for a stream, the one with the fewest slots (but one for "
        "each item) of those whose recall is within a hundredth of the best. “Plain” is the "
        f"paper's rule at {MEANT[PLAIN]}; every other setting differs from it only as named.",
        f"{_worst(found)} “Safe” is {MEANT[SAFE]}; we found it by trying settings on other draws "
        "of these same strains, so expect less of it elsewhere. Its keys move, and a token costs "
        f"more: {words.speed('keys', 0.7, SAFE)} tokens a second in place of "
        f"{words.speed('keys', 0.7, PLAIN)} (noise 0.7, 32 repeats).",
        _on_alike(words),
        f"With noise, tau must lie above the spread of repeats: {_chosen_taus(found)}. At noise 1 "
        "no threshold parts repeats from other items; attention over every token itself recalls "
        f"{words.recall('noise', 1.0, ALL)}.",
        f"A wrong tau is forgiven within limits: {_range(found, 0.1)} at noise 0.1, "
        f"{_range(found, 0.5)} at 0.5 (recall within a hundredth of the best, at most 1.1 slots "
        f"per item). A `Cache` that is told nothing takes {Concentration().tau:g}. Too small "
        "wastes slots, too large loses items: when in doubt, too small.",
        _on_keys(words),
        _on_values(words),
        "Of 10,000 items with keys of 64 numbers the plain setting recalls "
        f"{words.both('size64', 1e4, PLAIN)} slots per item, {words.speed('size64', 1e4, PLAIN)} "
        f"tokens a second; at tau .5 {words.both('size64', 1e4, 'tau .5')}, and with 128 numbers "
        f"{words.both('size128', 1e4, 'tau .5')}. More items lie closer together: take a smaller "
        "tau, or wider keys.",
    )


def _on_alike(words: Words) -> str:
    return (
        "Keys that are alike break the plain rule first: at a common cosine of 0.6 it recalls "
        f"{words.both('alike', 0.6, PLAIN)} slots per item, at 0.8 "
        f"{words.both('alike', 0.8, PLAIN)}. A smaller tau moves the cliff (tau .1 at 0.8: "
        f"{words.both('alike', 0.8, 'tau .1')}), centring takes it away "
        f"({words.both('alike', 0.8, 'centred')}). On keys that share nothing, centring costs "
        f"{words.slots('alike', 0.0, 'centred')} slots per item in place of "
        f"{words.slots('alike', 0.0, PLAIN)}: centre unless you know that there is no common part."
    )


def _on_keys(words: Words) -> str:
    noisy = {
        setting: words.slots("keys", 0.7, setting)
        for setting in (
            PLAIN,
            "mean key",
            "ema key",
            "tau .4",
            "tau .4, mean key",
            "tau .4, ema key",
        )
    }
    return (
        "With many noisy repeats the key should move. At noise 0.7 and 32 repeats the first key "
        f"takes {noisy[PLAIN]} slots per item, the mean {noisy['mean key']}, the moving average "
        f"{noisy['ema key']}; at tau .4 {noisy['tau .4']}, {noisy['tau .4, mean key']} and "
        f"{noisy['tau .4, ema key']}. Items that turn by 150 degrees take "
        f"{words.slots('drift', 150.0, PLAIN)} with first keys, "
        f"{words.slots('drift', 150.0, 'mean key')} with means, "
        f"{words.slots('drift', 150.0, 'ema key, pace .3')} with an average at pace .3."
    )


def _on_values(words: Words) -> str:
    new, wrong = (
        {setting: words.recall(strain, number, setting) for setting in VALUES}
        for strain, number in (("rebound", 2.0), ("mislabelled", 0.2))
    )
    return (
        f"Values: after a key is bound again the first value is right in {new[PLAIN]} of cases, "
        f"the last in {new['last value']}, the mean in {new['mean value']}, attention over every "
        f"token in {new[ALL]} (it was three old against two new). With one value in five wrong it "
        f"is {wrong[PLAIN]} for the first, {wrong['last value']} for the last, {wrong['counts']} "
        "for counts. The last where values change, counts or the mean where they are noisy; no "
        "policy does both."
    )


def _worst(found: Found) -> str:
    """How plain and safe fare where they fare worst."""
    hard = [strain for strain in STRAINS if SAFE in strain.settings]
    told = []
    for setting in (SAFE, PLAIN):
        met = [found[s.name, number, setting] for s in hard for number in s.streams]
        recalls = [measures["recall"].mean for measures in met]
        slots = max(measures["slots/item"].mean for measures in met)
        told.append(
            f"{setting} recalls {min(recalls):.2f} at worst and less than .95 on "
            f"{sum(recall < 0.95 for recall in recalls)} of {len(met)} streams, with up to "
            f"{slots:.1f} slots per item"
        )
    return f"On a stream you know nothing about: {told[0]}; {told[1]}."


def _chosen_taus(found: Found) -> str:
    strain = next(one for one in STRAINS if one.name == "noise")
    return ", ".join(
        f"{setting.replace(PLAIN, 'tau .3')} for {strain.label(number)}"
        for number in strain.streams
        for setting in [choose(found, strain, number)]
    )


def _range(found: Found, noise: float) -> str:
    """The thresholds that do for a noise."""
    met = {float(tau): found["tau", noise, at_tau(tau)] for tau in TAUS}
    best = max(measures["recall"].mean for measures in met.values())
    good = [
        tau
        for tau, measures in met.items()
        if measures["recall"].mean >= best - CLOSE and measures["slots/item"].mean <= 1.1
    ]
    return f"tau from {good[0]:g} to {good[-1]:g} will do" if good else "no tau will do"
