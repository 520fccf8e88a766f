import hashlib
from dataclasses import fields

import numpy as np
import pytest

from reproduction.data import DataDamaged, DataMissing, movielens
from tests.reproduction.data import lookalikes
from tests.reproduction.data.lookalikes import lay, packed

SMALL = {"n_ratings": 60, "n_movies": 10}


def same(one, other):
    """Whether two streams agree in all but the file they come from."""
    names = [field.name for field in fields(one) if field.name != "source"]
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


def read(files):
    data, item = files
    movies = movielens.official_genres if data in movielens.OFFICIAL else movielens.atomic_genres
    return movielens.read(files[data], movies(files[item]), data)


@pytest.fixture
def zipped(monkeypatch):
    """The archive of a look-alike, and its digest taken for the real one's."""
    content = packed(lookalikes.official_movielens())
    monkeypatch.setattr(movielens, "SHA256", hashlib.sha256(content).hexdigest())
    return content


def test_both_formats_and_the_archive_load_identically(here, zipped):
    streams = []
    for files in (
        lookalikes.atomic_movielens(),
        lookalikes.official_movielens(),
        {movielens.ZIP: zipped},
    ):
        lay(here["data"], files)
        streams.append(movielens.MOVIELENS.parse(files))
    assert streams[0].source != streams[1].source == streams[2].source
    assert same(streams[0], streams[1])
    assert same(streams[1], streams[2])
    assert same(streams[1], movielens.load())


def test_ratings_come_in_a_stable_sort_by_time():
    stream = read(lookalikes.official_movielens(**SMALL))
    rows = sorted(lookalikes.ratings(**SMALL), key=lambda row: row[3])
    assert [stream.names[item] for item in stream.items] == [str(row[1]) for row in rows]
    assert stream.times.tolist() == [row[3] for row in rows]


def test_the_label_is_the_first_genre_and_all_are_kept():
    stream = read(lookalikes.atomic_movielens(**SMALL))
    for item, label in zip(stream.items, stream.labels, strict=True):
        genres = lookalikes.genres(int(stream.names[item]))
        assert label == genres[0]
        assert np.flatnonzero(stream.genres[item]).tolist() == genres


def test_a_head_is_a_stream_of_ratings_too():
    head = read(lookalikes.official_movielens(**SMALL)).head(7)
    assert len(head) == 7
    assert head.genres.shape == (10, 19)


def test_it_is_downloaded_from_its_official_source(here, web, zipped, monkeypatch):
    folder, url = web
    (folder / "ml.zip").write_bytes(zipped)
    monkeypatch.setattr(movielens, "URL", f"{url}/ml.zip")
    assert len(movielens.load()) == 100_000
    assert [path.name for path in here["cache"].iterdir()] == ["ml-100k.zip"]


def test_it_comes_from_the_wheel_where_the_source_is_out_of_reach(here, tmp_path, monkeypatch):
    files = lookalikes.atomic_movielens()
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    monkeypatch.setattr(movielens, "WHEEL_FILES", digests)
    inside = {f"recbole/dataset_example/{name}": content for name, content in files.items()}
    name, content = lookalikes.wheel("recbole", "1.2.1", inside)
    lay(tmp_path / "wheels", {name: content})
    assert len(movielens.load()) == 100_000
    assert sorted(movielens.MOVIELENS.get()) == sorted(movielens.ATOMIC)


def test_where_it_cannot_be_had_both_reasons_are_given(here):
    with pytest.raises(DataMissing) as caught:
        movielens.load()
    said = str(caught.value)
    assert "ml-100k.zip: no network" in said
    assert "pip download recbole==1.2.1" in said
    assert "no redistribution" in said


def test_a_short_table_is_refused(here):
    lay(here["data"], lookalikes.official_movielens(n_ratings=99_999))
    with pytest.raises(DataDamaged, match="99,999 ratings of 1,682 movies"):
        movielens.load()


def test_an_archive_with_another_digest_is_refused():
    with pytest.raises(DataDamaged, match="digest"):
        movielens.MOVIELENS.parse({movielens.ZIP: packed(lookalikes.official_movielens(**SMALL))})


@pytest.mark.parametrize(
    ("ratings", "complaint"),
    [
        (b"", "no ratings"),
        (b"user_id:token\titem_id:token\trating:float\ttimestamp:float\n", "no ratings"),
        (b"1\t2\t3\n", "3 columns"),
        (b"1\t2\t3\tnoon\n", "not a table of ratings"),
        (b"1\t2\t3\t4\n1\t2\n", "not a table of ratings"),
        (b"1\t9\t3\t4\n", "rates movie '9', whose genres are not given"),
    ],
)
def test_what_is_no_table_of_ratings_is_refused(ratings, complaint):
    with pytest.raises(DataDamaged, match=complaint):
        movielens.read(ratings, {}, "u.data")


@pytest.mark.parametrize("movies", [b"1|A|B||C|1|0\n", b"1|A|B||C|" + b"|".join([b"0"] * 19)])
def test_a_movie_without_genres_is_refused(movies):
    with pytest.raises(DataDamaged, match="movie '1' has no genre"):
        movielens.official_genres(movies)
