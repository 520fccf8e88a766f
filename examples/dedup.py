"""Keep the lines of a file that are new, one by one; print why the others are dropped.

``distinctkv dedup FILE --explain`` does this, too, and more. A file of three lines gives:

    $ python examples/dedup.py lines.txt --similarity 0.7
    the door is open
    0.80 like 'the door is open': 'the door is open!'
    no such file
    Deduplicator(similarity=0.7, 2 kept of 3 records)
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from distinctkv.dedup import Deduplicator


def main(arguments: Sequence[str] | None = None) -> None:
    """Print what is kept; the reasons go to standard error."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--similarity", type=float, default=0.8)
    options = parser.parse_args(arguments)

    try:
        seen = Deduplicator(options.similarity)
        lines = options.file.read_text(encoding="utf-8", errors="replace").splitlines()
    except ValueError as error:
        parser.error(str(error))
    except OSError as error:
        parser.error(f"{options.file} cannot be read: {error}")
    for line in lines:
        decision = seen.add(line)
        if decision.kept:
            print(line)
        else:
            print(f"{decision.similarity:.2f} like {decision.record!r}: {line!r}", file=sys.stderr)
    print(seen, file=sys.stderr)


if __name__ == "__main__":
    main()
