"""What a study found, in words: a Markdown template beside this file, filled with its numbers.

``recall.md`` holds the paragraphs of study ``recall``, parted by blank lines. In braces stands a
number of the study and how it is printed:

- ``{dp.recall:.3f}``: the mean of measure ``recall`` of row ``dp``; with the table in front,
  ``{points.dp.recall:.3f}``, where several tables have a row of that name;
- ``{dp.recall.sd:.3f}`` and ``{dp.recall.n}``: its standard deviation and its number of seeds;
- ``{n_episodes:,}``: a value that the study passes by that name.

A paragraph is left out if it names a row whose data is missing, a row that only a full run has, or
a value passed as None.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ...result import Row

Value = float | str | None
PLACEHOLDER = re.compile(r"\{([^{}:]+)(?::([^{}]*))?\}")


def paragraphs(
    study_name: str, rows: Iterable[Row], absent: Iterable[str] = (), /, **extra: Value
) -> tuple[str, ...]:
    """The paragraphs of ``findings/<study_name>.md`` with the numbers of ``rows`` filled in.

    ``absent`` are the beginnings of names that this run does not have, as ``"recipe.flipped."``.
    """
    template = (Path(__file__).parent / f"{study_name}.md").read_text(encoding="utf-8")
    try:
        return render(template, rows, absent, **extra)
    except ValueError as error:
        raise ValueError(f"findings/{study_name}.md: {error}") from error


def render(
    template: str, rows: Iterable[Row], absent: Iterable[str] = (), /, **extra: Value
) -> tuple[str, ...]:
    """The paragraphs of ``template`` with the numbers filled in.

    >>> from ...result import Measure
    >>> rows = [Row("dp", "", {"recall": Measure(0.98765, 0.01, 3)}, "", "cache")]
    >>> render("Recall is {dp.recall:.3f} over {dp.recall.n} seeds; at most {most}.", rows, most=1)
    ('Recall is 0.988 over 3 seeds; at most 1.',)
    """
    rows = tuple(rows)
    values = {**_values(rows), **extra}
    missing = (*_missing(rows), *absent)
    found = []
    for paragraph in re.split(r"\n\s*\n", template.strip()):
        names = [name for name, _ in PLACEHOLDER.findall(paragraph)]
        left_out = any(
            values[name] is None if name in values else name.startswith(missing) for name in names
        )
        if not left_out:
            found.append(_fill(" ".join(paragraph.split()), values))
    return tuple(found)


def _fill(paragraph: str, values: Mapping[str, Value]) -> str:
    def value(match: re.Match[str]) -> str:
        name, spec = match[1], match[2] or ""
        if name not in values:
            raise ValueError(f"unknown name {{{name}}}; there are {', '.join(values)}")
        try:
            return format(values[name], spec)
        except ValueError as error:
            raise ValueError(f"{match[0]}: {error}") from error

    text = PLACEHOLDER.sub(value, paragraph)
    if "{" in text or "}" in text:
        raise ValueError(f"a brace stands alone in {paragraph!r}")
    return text


def _values(rows: tuple[Row, ...]) -> dict[str, Value]:
    """Every number by its name."""
    return {
        f"{prefix}{name}{suffix}": value
        for row, prefixes in _prefixes(rows)
        for prefix in prefixes
        for name, measure in row.measures.items()
        for suffix, value in (("", measure.mean), (".sd", measure.sd), (".n", measure.n))
    }


def _missing(rows: tuple[Row, ...]) -> tuple[str, ...]:
    """How the names of rows begin that could not be measured."""
    return tuple(prefix for row, found in _prefixes(rows) if row.missing for prefix in found)


def _prefixes(rows: tuple[Row, ...]) -> Iterator[tuple[Row, tuple[str, ...]]]:
    """How the names of a row begin: with its table, and without if no other table has the row."""
    tables = Counter(row.name for row in rows)
    for row in rows:
        full, short = f"{row.table}.{row.name}.", f"{row.name}."
        yield row, (full, short) if tables[row.name] == 1 else (full,)
