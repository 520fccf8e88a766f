"""All results on one HTML page that needs nothing else: no network, no scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from distinctkv import snapshot

from ..result import Claim, Result, Row, measures_of
from . import text
from .figures import pictures
from .plots import Picture


@dataclass(frozen=True, slots=True)
class Table:
    """A table as the template sees it."""

    heading: str
    rows: tuple[Row, ...]
    claims: tuple[Claim, ...]

    @property
    def measures(self) -> tuple[str, ...]:
        """What the columns measure."""
        return measures_of(self.rows)

    @property
    def claimed(self) -> frozenset[str]:
        """Measures that the paper has, too."""
        return frozenset(claim.measure for claim in self.claims)

    @property
    def has_settings(self) -> bool:
        """Whether any row has a setting of its own."""
        return any(row.setting for row in self.rows)

    @property
    def n_seeds(self) -> int:
        """Seeds behind every mean."""
        counts = [measure.n for row in self.rows for measure in row.measures.values()]
        return min(counts, default=0)


@dataclass(frozen=True, slots=True)
class Section:
    """A study as the template sees it."""

    result: Result
    pictures: tuple[Picture, ...]

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables of the study, each with what the paper claims of it."""
        result = self.result
        return tuple(
            Table(result.headings.get(name, "Table"), rows, result.claims_of(*rows))
            for name, rows in result.tables.items()
        )

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


def render(results: Sequence[Result]) -> str:
    """The page as text."""
    if not results:
        raise ValueError("a report needs at least one result; run a study first")
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    sections = [Section(result, pictures(result)) for result in results]
    return environment.get_template("page.html").render(
        sections=sections,
        story=next((section for section in sections if section.pictures), None),
        text=text,
        tally=text.tally(results),
    )


def write(results: Sequence[Result], path: Path) -> None:
    """Write the page atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    snapshot.replace(path, render(results).encode())
