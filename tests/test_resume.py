"""A stream with snapshots survives SIGKILL at any moment."""

from benchmarks.kills import chunk, harass, new, work


def test_a_killed_stream_ends_in_the_state_of_one_that_never_was(seed, tmp_path):
    tally = harass(n_kills=6, n_chunks=80, seed=seed, folder=tmp_path)
    assert (tally.kills, tally.differ) == (6, 0)
    assert tally.finished > 0
    assert tally.resumed > 0


def test_a_stream_that_stops_after_any_save_can_be_taken_up(seed, tmp_path):
    whole, halved = tmp_path / "whole.cache", tmp_path / "halved.cache"
    work(whole, 10, seed)
    work(halved, 6, seed)
    work(halved, 10, seed)
    assert whole.read_bytes() == halved.read_bytes()


def test_the_state_that_is_compared_depends_on_every_token(seed, tmp_path):
    one, other = tmp_path / "one.cache", tmp_path / "other.cache"
    work(one, 2, seed)
    cache = new()
    for number in (1, 0):
        cache.write(*chunk(number, seed))
    cache.save(other)
    assert one.read_bytes() != other.read_bytes()
