"""Speed, memory and durability, measured on the reader's machine; run as `python -m benchmarks.x`.

Everything is timed on one thread, and BLAS reads its number of threads when NumPy is imported, so
it is set here, before any benchmark imports anything.
"""

import os

for _name in ("OMP", "OPENBLAS", "MKL", "NUMBA"):
    os.environ[f"{_name}_NUM_THREADS"] = "1"
