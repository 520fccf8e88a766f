"""Log lines of real programs whose templates are known; no rule of the parser is chosen on them.

Python's ``logging`` keeps the truth with every line: ``record.msg`` is the template, and
``record.args`` are the values. ``programs`` runs programs and captures both; ``python -m
benchmarks.logging_truth`` scores parsers on them.
"""
