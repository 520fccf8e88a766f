"""A share of ``python -m benchmarks.reliability``, and what older versions wrote."""

import json
import subprocess
import sys
from random import Random

import pytest
from safetensors import safe_open

from benchmarks import bad, damage, reliability
from distinctkv import snapshot
from distinctkv.engines.screened import Prefilter
from fuzz import rows
from fuzz.drive import mutate
from tests.golden.snapshots import HERE, MAKERS, facts, load

GOLDEN = sorted(HERE.glob("*.safetensors"))


def test_caches_of_any_kind_come_back_to_the_bit(rng, tmp_path):
    assert reliability.round_trips(30, rng, tmp_path) == 30


def test_a_damaged_snapshot_is_refused_or_the_same(rng, tmp_path):
    fate = damage.mutations(480, rng, tmp_path)
    print(dict(fate))
    assert (fate["wrong"], fate["crashed"]) == (0, 0)
    assert fate["refused"] > 400


def test_the_damage_would_be_seen(rng, tmp_path, monkeypatch):
    monkeypatch.setattr(snapshot, "_digest", lambda *_: "no digest")
    assert damage.mutations(480, rng, tmp_path)["wrong"] > 0


def test_forty_kinds_of_bad_input_are_refused_by_every_engine(tmp_path):
    pytest.importorskip("numba")
    kinds = len(bad.tries())
    assert kinds >= 40
    assert reliability.refused(tmp_path) == {"refused": kinds * len(reliability.ENGINES)}


def test_the_prefilter_is_in_use_when_bad_input_comes():
    cache = reliability.holder("screened")
    assert cache._slots.index(Prefilter).ready  # not public: which engine decided
    assert cache.write(cache.slots.keys[:5], [0] * 5).tolist() == [0, 1, 2, 3, 4]


def test_a_full_disk_leaves_the_old_snapshot(tmp_path):
    assert all(reliability.disk_full(tmp_path).values())


def test_a_save_that_succeeds_or_leaves_a_wreck_would_be_seen(tmp_path, monkeypatch):
    def wreck(*_, **__):
        (tmp_path / "full" / "cache").write_bytes(b"half")
        (tmp_path / "full" / "cache.part").touch()
        return subprocess.CompletedProcess([], 0, stdout="")

    monkeypatch.setattr(reliability.subprocess, "run", wreck)
    assert not any(reliability.disk_full(tmp_path).values())


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_what_an_older_version_wrote_is_loaded(path, tmp_path):
    loaded = load(path)
    assert facts(loaded) == json.loads(path.with_suffix(".json").read_text())
    loaded.save(tmp_path / "again")
    assert facts(type(loaded).load(tmp_path / "again")) == facts(loaded)


def test_every_version_of_the_format_has_its_golden_files():
    versions = range(1, int(snapshot.VERSION) + 1)
    want = {f"{name}-{version}" for name in MAKERS for version in versions}
    assert {path.stem for path in GOLDEN} == want


def test_the_format_has_not_changed_without_a_new_version(tmp_path):
    for name, make in MAKERS.items():
        make().save(tmp_path / name)
        golden = HERE / f"{name}-{snapshot.VERSION}.safetensors"
        assert outline(tmp_path / name) == outline(golden)


def outline(path):
    """Names and types of all that a snapshot holds."""

    def types(tree):
        if isinstance(tree, dict):
            return {key: types(below) for key, below in tree.items()}
        return type(tree).__name__

    with safe_open(path, framework="np") as file:
        head = json.loads(file.metadata()["distinctkv"])
        return types(head), {name: file.get_tensor(name).dtype for name in file.keys()}  # noqa: SIM118


AUDIT = """
import sys
from tests.golden.snapshots import load
import safetensors.numpy
def hook(event, arguments):
    if event.startswith("pickle."):
        raise SystemExit(f"{event} while loading")
for name in ("pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve"):
    sys.modules[name] = None  # whoever imports it now fails
sys.addaudithook(hook)
%s
for path in sys.argv[1:]:
    load(path)
    print("loaded", path)
"""


@pytest.mark.parametrize("extra", ["", "import pickle"], ids=["load", "import pickle"])
def test_nothing_imports_pickle_while_loading(extra):
    command = [sys.executable, "-c", AUDIT % extra, *map(str, GOLDEN)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert (run.returncode != 0) == bool(extra), run.stderr
    assert run.stdout.count("loaded") == (0 if extra else len(GOLDEN))


def test_the_rows_of_the_fuzzer_hold(seed):
    random = Random(seed)
    for data in (b"", *rows.SEEDS):
        rows.target(data)
    for _ in range(80):
        rows.target(mutate(rows.SEEDS, random))
