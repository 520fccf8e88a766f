"""Tasks on real texts: novels, Wikipedia and logs, read from ``$DISTINCTKV_DATA`` and not kept."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import cycle
from pathlib import Path

from reproduction.data import loghub
from reproduction.data.download import folders

from .kit import Kit, Task
from .tasks import continuation, needles_in

NOVELS, ARTICLES = "text/english_novels_100.tar.xz", "text/wikitext-2/test.txt"


def find(name: str) -> Path | None:
    """A file of text, if it is here."""
    return next((place / name for place in folders() if (place / name).is_file()), None)


@cache
def novels() -> tuple[str, ...]:
    """Whole novels; the packed file is read through once."""
    path = find(NOVELS)
    assert path is not None
    with tarfile.open(path) as archive:
        files = (archive.extractfile(member) for member in archive if member.isfile())
        return tuple(file.read().decode("utf-8-sig", "replace") for file in files if file)


@cache
def articles() -> str:
    """The test part of WikiText-2, without its marks."""
    path = find(ARTICLES)
    assert path is not None
    text = path.read_text(encoding="utf-8").replace(" @-@ ", "-").replace(" @,@ ", ",")
    return re.sub(r" ([.,;:)'])", r"\1", text)


def prose(kit: Kit) -> Task:
    """Eight facts in a novel."""
    return needles_in(kit, sentences(kit))


def prose_many(kit: Kit) -> Task:
    """A fact for every 64 tokens of a novel, eight of them asked for."""
    return needles_in(kit, sentences(kit), max(8, kit.length // 64))


def raw_logs(kit: Kit) -> Task:
    """Eight facts in lines of a real log, one after the other."""
    return needles_in(kit, log_lines(kit))


def goes_on_novel(kit: Kit) -> Task:
    """How a novel goes on."""
    return continuation(kit, _piece(kit, kit.one(novels())))


def goes_on_article(kit: Kit) -> Task:
    """How Wikipedia goes on."""
    return continuation(kit, _piece(kit, articles()))


def goes_on_log(kit: Kit) -> Task:
    """How a log goes on."""
    return continuation(kit, _piece(kit, "\n".join(loghub.load(_system(kit)).raw)))


def _system(kit: Kit) -> str:
    name: str = kit.one(sorted(loghub.present()))
    return name


def log_lines(kit: Kit) -> Iterator[str]:
    """Lines of a real log from a random place, and again when they end."""
    raw = loghub.load(_system(kit)).raw
    start = int(kit.rng.integers(len(raw)))
    return cycle(raw[start:] + raw[:start])


def sentences(kit: Kit) -> Iterator[str]:
    """Sentences of a novel from a random place."""
    text = _piece(kit, kit.one(novels()))
    return iter([one for one in re.split(r"(?<=[.!?])\s+", " ".join(text.split())) if one])


def _piece(kit: Kit, text: str) -> str:
    """Enough letters of a text from a random place."""
    size = 8 * (kit.length + 512)
    start = int(kit.rng.integers(max(1, len(text) - size)))
    return text[start : start + size]


ALL: Mapping[str, tuple[str, Callable[[Kit], Task]]] = {
    "prose": (NOVELS, prose),
    "prose_many": (NOVELS, prose_many),
    "raw_logs": ("loghub", raw_logs),
    "nll_novels": (NOVELS, goes_on_novel),
    "nll_docs": (ARTICLES, goes_on_article),
    "nll_logs": ("loghub", goes_on_log),
}


def tasks() -> dict[str, Callable[[Kit], Task]]:
    """Those whose text is on this machine."""
    return {
        name: make
        for name, (source, make) in ALL.items()
        if (loghub.present() if source == "loghub" else find(source))
    }
