"""How the records of files are cut, found out as the files are read."""

from __future__ import annotations

from ..logs.headers import SAMPLE, Header
from ..logs.headers import guess as guess_header
from ..logs.sources import Source
from ..logs.unpacking import SourceError
from .forms import Form, Json, Text
from .guessing import check_length, of_start, same_columns
from .separated import Csv

ENOUGH, PATIENCE = 50, 3.0  # lines, or seconds, to guess the header of what comes slowly
TWO = 2  # characters, not blank, tell an array from what else begins with a bracket
MOST = 1 << 20  # bytes that a header is guessed from


class Finder:
    """The form of the records, one for all files: of CSV by its columns, of text by its header."""

    def __init__(self, form: str, field: str | None) -> None:
        self.form, self.field = form, field
        self.columns = b""  # the first line of CSV
        self.stamp: Header | None = None  # of lines of text: what follows it is compared
        self.guessing = False  # it from the first lines
        self.json = Json(field or "")
        self._text: Text | None = None

    def known(self, offset: int) -> Form | None:
        """How a file is cut from an offset on; None if its first bytes must say."""
        if self.form == "jsonl":
            return self.json
        if self.form == "text":
            return None if self.guessing else self._lines()
        return Csv(self.field or "", self.columns) if offset else None

    def begin(
        self, held: bytes, source: Source, *, over: bool, waited: float, whole: bool
    ) -> Form | None:
        """How a file is cut that begins so; None if more of it must be seen.

        ``waited`` says for how many seconds nothing came. If only ``whole`` lines count, the last
        of a file may be half written.
        """
        if self.form == "text":
            return self._guess(held, over=over, waited=waited, whole=whole)
        if self.form == "auto":
            if not over and len(b"".join(held.split(None, 2))) < TWO:
                if len(held) > MOST and not held.strip():
                    raise SourceError(
                        f"{source.name} begins with more than {MOST:,} blanks; say what it is "
                        "with --format"
                    )
                return None
            if held.strip():
                self.form = of_start(held, self.field, source.name)
        if self.form == "jsonl":
            return self.json
        line, newline, _ = held.partition(b"\n")
        check_length(line, source.name)
        if not newline and not over:
            return None
        if over and not held.strip():
            return self.json  # for which blank lines are nothing
        form = Csv(self.field or "", line)
        same_columns(source.name, line, self.columns or line)
        self.columns = line
        return form

    @property
    def doubt(self) -> str:
        """What makes the verdicts on lines doubtful; nothing if nothing does."""
        text, stamp = self._text, self.stamp
        if text is None or stamp is None or stamp.fields or 2 * text.headerless <= text.lines:
            return ""
        return (
            f"{text.headerless:,} of {text.lines:,} lines do not begin with the header given, and "
            "are compared as a whole; check --header"
        )

    def _lines(self) -> Text:
        self._text = self._text or Text(self.stamp)
        return self._text

    def _guess(self, held: bytes, *, over: bool, waited: float, whole: bool) -> Form | None:
        lines = held.split(b"\n")
        if not over or whole:
            lines.pop()
        seen = len(lines) >= SAMPLE or len(held) >= MOST
        late = waited > (0.0 if len(lines) >= ENOUGH else PATIENCE) and bool(lines)
        if not (over or seen or late):
            return None
        if any(lines):
            texts = [line.decode("utf-8", "replace").rstrip("\r") for line in lines[:SAMPLE]]
            self.stamp, self.guessing = guess_header(texts), False
            return self._lines()
        return Text()
