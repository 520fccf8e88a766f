"""The read over slots, by Triton's interpreter; prints JSON.

A process of its own: Triton decides when it is imported whether to interpret.
"""

import os

os.environ["TRITON_INTERPRET"] = "1"

import json
import sys
import warnings

import numpy as np

from distinctkv.hf import attention, ragged
from tests.hf.ragged_cases import CASES, draw
from tests.nn.interpreted import off, poison


def main():
    rng = np.random.default_rng(int(sys.argv[1]))
    # The interpreter multiplies what no one will read, and says so.
    warnings.filterwarnings("ignore", "invalid value|overflow", RuntimeWarning)
    poison()
    found = {}
    for name, case in CASES.items():
        parts = draw(rng, **case)
        want = attention.read(*parts)
        found[name] = off(ragged.read(*parts).float(), want.float())
    print(json.dumps(found))


if __name__ == "__main__":
    main()
