import argparse
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool

import pytest

pytest.importorskip("torch")

from benchmarks import mqar as bench
from benchmarks import mqar_tables as tables
from reproduction.studies import mqar as study
from reproduction.studies.mqar_models import SMALL, make_model

FOUND = {"items": 8, "tokens": 64, "recall": 0.5, "bytes": 2048.0, "slots": 16.0}


def run(model, seed, **more):
    return {"how": "", "model": model, "seed": seed, "curve": [[3, 1.0, 0.1]], **more}


def test_mass_comes_first_and_then_all_models_of_a_seed():
    order = [job[1:] for job in bench.jobs([""], ["full", "mass", "delta:1", "kvm"], [5, 6])]
    assert order[:2] == [("mass", 5), ("mass", 6)]
    assert order[2:5] == [("full", 5), ("delta", 5), ("kvm", 5)]
    assert order[5:] == [("full", 6), ("kvm", 6)]


def test_a_rule_with_a_schedule_waits_for_mass_of_its_seed_alone():
    first, ours = {("", "mass", 0), ("", "mass", 1)}, {("", "mass", 0): run("mass", 0)}
    assert not bench._waits(("", "kvm", 0), first, ours)
    assert bench._waits(("", "kvm", 1), first, ours)
    assert not bench._waits(("", "full", 1), first, ours)


class Pool:
    """Does a job at once, and notes it and whose bytes it was given; the second job breaks it."""

    def __init__(self, noted):
        self.noted = noted

    def submit(self, do, job, base, ours, until, brief):
        self.noted.append((job[1], ours and ours["model"]))
        future = Future()
        if len(self.noted) == 2:
            future.set_exception(BrokenProcessPool())
        else:
            future.set_result({"found": []})
        return future

    def shutdown(self):
        pass


def test_a_worker_that_dies_costs_its_job_and_rules_are_given_the_bytes_of_mass(monkeypatch, seed):
    noted = []
    monkeypatch.setattr(bench, "ProcessPoolExecutor", lambda *settings: Pool(noted))
    said = argparse.Namespace(workers=1, brief=True)
    todo = bench.jobs([""], ["mass", "full", "kvm", "window"], [seed])
    runs = {run["model"]: run for run in bench.done(todo, SMALL, 1e12, said)}
    assert noted == [("mass", None), ("full", None), ("kvm", "mass"), ("window", None)]
    assert "died" in runs["full"]["wrong"]
    assert all("found" in runs[name] for name in ("mass", "kvm", "window"))


def test_nothing_is_begun_after_the_deadline(seed):
    said = bench._one(("", "mass", seed), SMALL, None, 0.0, brief=False)
    assert "deadline" in said["wrong"]


def test_a_rule_that_has_no_bytes_to_be_given_says_so(seed):
    said = bench._one(("", "kvm", seed), SMALL, None, 1e12, brief=False)
    assert "no bytes of mass" in said["wrong"]


def test_plain_sequences_are_asked_however_late_it_is(seed, monkeypatch):
    monkeypatch.setattr(study, "n_sequences", lambda tokens: 1)
    model = make_model("mass", SMALL).eval()
    said = bench.asked(model, "mass", seed, SMALL, {}, brief=False, until=0.0)
    assert [(one["items"], one["tokens"]) for one in said["found"]] == list(SMALL.asked)
    assert set(said) == {"found"}


def test_tables_tell_what_was_cut_and_leave_out_what_failed(capsys):
    whole = run("mass", 0, found=[FOUND] * 5, cut=False)
    short = run("mass", 1, found=[FOUND] * 5, cut=True)
    tables.recalled(
        {"device": "", "torch": "", "size": {}, "runs": [whole, short, run("full", 0, wrong="no")]}
    )
    said = capsys.readouterr().out
    assert "cut: mass 1" in said
    assert "cut: full 0" in said
    assert "| slots, mass read | .500 .500 |" in said
    assert "| slots, mass read | 2 | .500 (2; 2.00) |" in said
    assert "| full attention" not in said


def test_a_model_that_there_is_not_is_refused():
    with pytest.raises(argparse.ArgumentTypeError, match="NAME:SEEDS"):
        bench._model("mass:two")
    assert bench._model("mass:2") == "mass:2"
