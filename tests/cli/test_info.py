"""``distinctkv info`` on every kind of snapshot."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from distinctkv import Cache, Concentration, snapshot
from distinctkv.cli import main
from distinctkv.cli.info import LONG
from distinctkv.dedup import Deduplicator
from distinctkv.logs import LogParser
from distinctkv.novelty import NoveltyDetector
from tests.cli.logs import start


def info(*arguments):
    return CliRunner().invoke(main, ["info", *map(str, arguments)])


def cache():
    held = Cache(Concentration.fixed(0.3))
    held.write(np.eye(3)[[0, 1, 1]], [4, 5, 5])
    return held


def fed(held, name="add_many"):
    getattr(held, name)(["door 1 open", "door 1 open", "no such file"])
    return held


KINDS = {
    "cache": (cache, {"slots": 2, "rows seen": 3, "key size": 3, "budget": None}),
    "log parser": (lambda: fed(LogParser()), {"templates": 2, "lines": 3}),
    "deduplicator": (lambda: fed(Deduplicator()), {"kept": 2, "records": 3, "similarity": 0.9}),
    "novelty detector": (lambda: fed(NoveltyDetector()), {"known things": 2, "records": 3}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_snapshot_says_what_it_holds(tmp_path, kind):
    make, expected = KINDS[kind]
    path = tmp_path / "snapshot"
    make().save(path)
    found = json.loads(info(path, "--json").stdout)
    assert found["kind"] == kind
    assert found["bytes"] == path.stat().st_size
    assert expected.items() <= found.items()
    shown = info(path).stdout
    assert f"kind: {kind}" in shown
    assert all(f"{name}: {value}" in shown for name, value in expected.items() if value)


def test_empty_ones_are_told_too(tmp_path):
    for held in (Cache(), LogParser(), Deduplicator(), NoveltyDetector()):
        held.save(tmp_path / "snapshot")
        assert info(tmp_path / "snapshot").exit_code == 0


def test_an_unknown_kind_is_described_by_its_tensors(tmp_path):
    snapshot.save(tmp_path / "x", "other", {"a": np.zeros((2, 3))}, {"b": 1, "c": [0] * 999})
    found = json.loads(info(tmp_path / "x", "--json").stdout)
    assert (found["state"]["b"], found["tensors"]) == (1, 1)
    assert len(found["state"]["c"]) == LONG
    assert "b  1" in info(tmp_path / "x").stdout


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_are_counted_and_listed_when_asked_for(tmp_path, kind):
    path = tmp_path / "x"
    KINDS[kind][0]().save(path)
    few, all_of_them = (
        json.loads(info(path, "--json", *more).stdout) for more in ((), ["--tensors"])
    )
    tensors, _ = snapshot.load(path, kind)
    assert few["tensors"] == len(tensors)
    assert [*all_of_them["tensors"]] == sorted(tensors)


def test_a_saved_talk_says_what_it_holds(tmp_path, seed):
    pytest.importorskip("transformers")
    import torch

    from distinctkv.hf import CAREFUL, distinct_cache
    from tests.hf.models import build

    model = build(seed)
    cache = distinct_cache(model, kept=0.5, care=CAREFUL)
    with torch.no_grad():
        model(torch.arange(400).reshape(2, 200) % 50, past_key_values=cache)
    cache.save(tmp_path / "x")
    found = json.loads(info(tmp_path / "x", "--json").stdout)
    summary = cache.summary()
    assert found["model"]["layers"] == len(summary.slots)
    assert (found["streams"], found["tokens seen"]) == (2, 200)
    assert found["slots"] == cache.n_slots(0) + cache.n_slots(1)
    assert found["part held"] == pytest.approx(
        np.mean([cache.summary(stream=i).kept for i in range(2)]), abs=1e-3
    )
    assert (found["kept"], found["thresholds found"]) == (0.5, cache.sizing.thresholds)
    assert {*found["care"].split(", ")} == {"importance=0.25", "horizon=512", "attended=True"}
    shown = info(tmp_path / "x").stdout
    assert len(shown.splitlines()) < 30
    assert f"tensors: {found['tensors']}" in shown


def test_control_characters_do_not_reach_the_terminal(tmp_path):
    seen = Deduplicator()
    seen.add("red \x1b[31m")
    seen.save(tmp_path / "x")
    assert "\x1b" not in info(tmp_path / "x").stdout


def test_what_is_no_snapshot_is_refused(tmp_path):
    path = tmp_path / "x"
    path.write_text("no")
    assert "is no snapshot of distinctkv" in info(path).stderr
    cache().save(path)
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    answer = info(path)
    assert (answer.exit_code, "was changed after it was written" in answer.stderr) == (1, True)
    assert info(tmp_path / "none").exit_code == 2


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_full_disk_is_told(tmp_path, options):
    cache().save(tmp_path / "x")
    with open("/dev/full", "wb") as full:
        process = start("info", tmp_path / "x", *options, stdout=full)
        _, told = process.communicate(timeout=120)
    assert process.returncode == 1
    assert told == b"Error: cannot write the output: No space left on device\n"
