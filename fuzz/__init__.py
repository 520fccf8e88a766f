"""Targets for a fuzzer: what they call must hold its promises for any bytes.

``python -m fuzz.parser``, ``python -m fuzz.state`` and ``python -m fuzz.rows`` run for as long as
atheris is asked to, for example with ``-max_total_time=60``. Where atheris is not installed they
take ``--runs``, and the bytes are drawn at random.
"""
