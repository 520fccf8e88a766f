"""The live view of ``watch``."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from time import monotonic

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..logs.history import Sample
from ..logs.job import Job
from ..logs.listing import Row, listing
from ..logs.novelties import Novelty
from .io import visible
from .rows import styled

BARS = "▁▂▃▄▅▆▇█"
REFRESH = 0.25  # seconds
WINDOW = 5.0  # seconds that the rate is an average over
WIDTH = 48  # bars of a sparkline
GAP = 2  # blanks between two numbers
HEAD = 14  # lines that are not rows


def spark(values: Sequence[float], top: float | None = None) -> str:
    """Values as bars between 0 and the highest of them, or ``top``.

    >>> spark([0, 1, 2, 4])
    '▁▃▅█'
    """
    top = max(values, default=0.0) if top is None else top
    if not top:
        return BARS[0] * len(values)
    return "".join(BARS[min(7, int(8 * value / top))] for value in values)


def thinned(samples: Sequence[Sample], width: int = WIDTH) -> list[Sample]:
    """As many samples as a sparkline has bars, the last among them.

    >>> [one.lines for one in thinned([Sample(n, 0, 0, 0, None, 0.0) for n in range(100)])][-3:]
    [93, 96, 99]
    """
    step = -(-len(samples) // width)
    return [*samples[::-step]][::-1]


class View:
    """What the terminal shows: numbers, how they moved, new and frequent templates."""

    def __init__(self, job: Job, console: Console | None = None) -> None:
        self._job = job
        self._newest: deque[Novelty] = deque(maxlen=50)
        self._marks = deque([(monotonic(), job.parser.seen)])
        self._top: list[Row] = []
        self._next_top = self._next = 0.0
        console = console or Console()
        self._live = Live(self, console=console, auto_refresh=False, vertical_overflow="crop")

    def __enter__(self) -> View:
        """Begin to draw."""
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the last of it on the terminal."""
        self._next_top = 0.0
        self._refresh()
        self._live.__exit__(None, None, None)

    def show(self, found: Sequence[Novelty]) -> None:
        """Take note of what is new, and draw if it is time."""
        self._newest.extend(found)
        if monotonic() >= self._next:
            self._refresh()

    def _refresh(self) -> None:
        now = monotonic()
        self._marks.append((now, self._job.parser.seen))
        while len(self._marks) > 2 and now - self._marks[1][0] > WINDOW:
            self._marks.popleft()
        if now >= self._next_top:
            self._top = listing(self._job)
            # Listing works out all templates anew: let it take a twentieth of the time at most.
            self._next_top = monotonic() + max(1.0, 20 * (monotonic() - now))
        self._live.refresh()
        self._next = monotonic() + REFRESH

    @property
    def rate(self) -> float:
        """Lines per second, lately."""
        (start, before), (end, now) = self._marks[0], self._marks[-1]
        return (now - before) / (end - start) if end > start else 0.0

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        """The view, as high as the terminal."""
        rows = max(2, (options.height or options.max_height) - HEAD)
        n_new = min(len(self._newest), rows // 2)
        yield self._numbers(options.max_width)
        yield self._new(n_new)
        yield self._frequent(rows - max(1, n_new))

    def _numbers(self, width: int) -> Table:
        now, feed = Sample.of(self._job.parser), self._job.feed
        lines = Text.assemble((f"{now.lines:,}", "bold"), f" lines, {self.rate:,.0f}/s")
        held = Text.assemble((f"{now.templates:,}", "bold"), f" held, {now.opened:,} opened")
        left = width - len("temperature") - max(lines.cell_len, held.cell_len) - 2 * GAP
        moves = thinned([*self._job.history.samples, now], min(WIDTH, max(1, left)))
        told = Table.grid(padding=(0, GAP, 0, 0))
        told.add_column(no_wrap=True)
        told.add_column(no_wrap=True)
        told.add_column(no_wrap=True, max_width=max(1, left), overflow="ellipsis")
        state = "waiting for more" if feed.waiting else visible(feed.name)
        told.add_row("lines", lines, Text(state, style="dim"))
        told.add_row("templates", held)
        slots = spark([float(sample.slots) for sample in moves])
        limit = ", no limit" if now.budget is None else ""
        told.add_row("slots", f"{now.slots:,}{limit}", Text(slots, style="cyan"))
        if now.budget is not None:
            granted = spark([sample.budget or 0.0 for sample in moves])
            told.add_row("budget", f"{now.budget:,.0f}", Text(granted, style="magenta"))
        heat = spark([sample.temperature for sample in moves], 1.0)
        told.add_row("temperature", f"{now.temperature:.3f}", Text(heat, style="red"))
        return told

    def _new(self, n_rows: int) -> Table:
        made = _table("new templates", "line", "novelty")
        for one in [*self._newest][: -n_rows - 1 : -1]:
            made.add_row(f"{one.number:,}", f"{one.novelty:.2f}", _one_line(one.template))
        if not n_rows:
            made.add_row("", "", Text("nothing new yet", style="dim"))
        return made

    def _frequent(self, n_rows: int) -> Table:
        made = _table("frequent templates", "count", "share")
        for row in self._top[:n_rows]:
            made.add_row(f"{row.count:,}", f"{row.share:.1%}", _one_line(row.template))
        return made


def _table(name: str, *numbers: str) -> Table:
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=True)
    for number in numbers:
        made.add_column(number, justify="right", no_wrap=True, min_width=8)
    made.add_column(name, ratio=1, no_wrap=True, overflow="ellipsis")
    return made


def _one_line(template: str) -> Text:
    text = styled(template)
    text.no_wrap, text.overflow = True, "ellipsis"
    return text
