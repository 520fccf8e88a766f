"""Allocation in chunks against the rule on many random streams.

Every slot, nearest slot and novelty must be equal to the last bit. Prints the number of cases that
are, and the kind of each one that is not. Run ``python -m benchmarks.allocation_cases``.
"""

from __future__ import annotations

from collections import Counter

import click
import numpy as np

from tests.nn.cases import differs, draw

from .common import stamp, verdict


@click.command()
@click.option("--cases", default=10_000, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--impl", default="torch", show_default=True)
def main(cases: int, seed: int, impl: str) -> None:
    """Count the cases in which allocation in chunks is the rule, id for id."""
    stamp("torch")
    rng = np.random.default_rng(seed)
    equal: Counter[str] = Counter()
    tokens = 0
    for number in range(cases):
        case = draw(rng)
        tokens += case.keys[..., 0].numel()
        if wrong := differs(case, impl):
            print(f"case {number} ({case.kind}, tau {case.tau}): {', '.join(wrong)}")
        else:
            equal[case.kind] += 1
    print(f"{tokens:,} tokens; equal by kind: {dict(sorted(equal.items()))}")
    if not verdict(f"{equal.total()} of {cases} cases equal the rule", equal.total() == cases):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
