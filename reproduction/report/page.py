"""All results on one HTML page that needs nothing else: no network, no scripts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from distinctkv import snapshot

from ..result import Claim, Result, Row, measures_of
from . import text
from .figures import figure
from .plots import Picture


@dataclass(frozen=True, slots=True)
class Section:
    """A study as the template sees it."""

    result: Result
    picture: Picture | None

    @property
    def claims(self) -> Sequence[tuple[str, str, Claim]]:
        """Each claim with the row and the table that it is on; independent ones first."""
        rows = {(row.table, row.name): row.label for row in self.result.rows}
        labelled = [
            (rows.get((claim.table, claim.row), claim.row), claim.measure, claim)
            for claim in self.result.claims
        ]
        return sorted(labelled, key=lambda one: not one[2].independent)

    @property
    def tables(self) -> Sequence[tuple[str, tuple[Row, ...], tuple[str, ...]]]:
        """The heading, the rows and the measures of each table."""
        return [
            (self.result.headings.get(name, "Table"), rows, measures_of(rows))
            for name, rows in self.result.tables.items()
        ]

    @property
    def facts(self) -> Mapping[str, str]:
        """Settings, seeds and versions, for whoever wants the same numbers again."""
        result = self.result
        return {
            **{name.replace("_", " "): str(value) for name, value in result.settings.items()},
            "seeds": ", ".join(map(str, result.seeds)),
            **result.versions,
            "seconds": f"{result.seconds:.1f}",
        }


def markdown(line: str) -> Markup:
    """A line of Markdown as HTML: code, bold, links within the page, and real minus signs.

    >>> print(markdown("`a < b` is **bold**, see [here](#there)"))
    <code>a &lt; b</code> is <strong>bold</strong>, see <a href="#there">here</a>
    """
    said = re.sub(r"(?<=\s)-(?=\d)", "−", str(escape(line)))
    said = re.sub(r"`([^`]+)`", r"<code>\1</code>", said)
    said = re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", said)
    return Markup(re.sub(r"\[([^]]+)\]\((#[\w-]+)\)", r'<a href="\2">\1</a>', said))


def environment() -> Environment:
    """The templates of the page."""
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["markdown"] = markdown
    return made


def render(results: Sequence[Result]) -> str:
    """The page as text."""
    if not results:
        raise ValueError("a report needs at least one result; run a study first")
    stories = (figure(result, story=True) for result in results)
    return (
        environment()
        .get_template("page.html")
        .render(
            sections=[Section(result, figure(result)) for result in results],
            story=next((story for story in stories if story), None),
            summary=text.summary(results),
            text=text,
            tally=text.tally_lines(results),
        )
    )


def write(results: Sequence[Result], path: Path) -> None:
    """Write the page atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    snapshot.replace(path, render(results).encode())
