"""The benchmark keeps what it measured, whichever part of it is run."""

import json
import sys

from benchmarks import scale


def test_one_section_leaves_the_others_as_they_were(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, found in (("merged", "first"), ("cost", "second"), ("merged", "third")):
        monkeypatch.setattr(scale, name, lambda *_, found=found: found)
        monkeypatch.setattr(sys, "argv", ["scale", "--quick", "--only", name])
        scale.main()
    kept = json.loads((tmp_path / "out/bench/scale.json").read_text())
    assert {name: part["result"] for name, part in kept.items()} == {
        "merged": "third",
        "cost": "second",
    }
    assert all(part["machine"]["date"] for part in kept.values())
