import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from benchmarks.llm import __main__ as program
from benchmarks.llm import aims, rows, selection, table
from benchmarks.llm.rows import Row


def row(way="ours", part=0.25, accuracy=1.0, seed=0, task="facts"):
    return Row(task, 200, seed, way, part, part, accuracy, 1.0, 0.1, "abc")


def test_an_interval_holds_the_mean_and_shrinks_with_more_contexts(rng):
    few, many = rng.random(8), rng.random(800)
    for numbers in (few, many):
        mean, low, high = table.interval(numbers)
        assert mean == pytest.approx(np.mean(numbers))
        assert low < mean < high
    assert np.diff(table.interval(many)[1:]) < np.diff(table.interval(few)[1:])


def test_differences_are_taken_on_the_same_contexts():
    some = [row(accuracy=a, seed=s) for s, a in enumerate((1.0, 0.5, 0.75))]
    some += [row("rival", accuracy=a, seed=s) for s, a in enumerate((0.5, 0.5))]
    assert table.paired(some, 0.25, "ours", "rival").tolist() == [0.5, 0.0]


def test_the_table_names_every_way_and_its_lead():
    some = [row("full", 1.0), row(), row("rival", accuracy=0.5)]
    text = table.show(some, ["ours"], [0.25])
    assert "+0.50 [+0.50, +0.50] rival" in text
    assert "200 tokens, kept 1/4" in text


def test_a_report_says_which_aims_are_met(tmp_path, capsys):
    some = [
        Row(task, 4096, seed, way, part, part, accuracy, 1.0, 0.1, "abc")
        for task in ("facts", "logs")
        for seed in range(4)
        for way, accuracy in (("ours", 0.9), ("SnapKV", 0.5), ("KVzip", 0.95))
        for part in (0.5, 0.25)
    ]
    some += [Row("facts", 4096, s, "full", 1.0, 1.0, 1.0, 1.0, 0.1, "abc") for s in range(4)]
    some += [Row("facts", 4096, s, "threshold 1", 1.0, 0.2, 0.8, 1.0, 0.1, "abc") for s in range(4)]
    path = tmp_path / "rows.jsonl"
    rows.append(path, some)
    program.report([path], ["ours"])
    text = capsys.readouterr().out
    assert "MET    (a) 4096, 1/4, all recall: at least +0.08: +0.40" in text
    assert "MISSED (b) 4096, 1/4, facts: above KVzip: -0.05" in text
    assert "MISSED (b) 4096, 1/4, all recall: within .03 of KVzip" in text
    assert "MISSED (c) threshold 1: kept facts 0.20" in text


def test_novels_are_judged_by_nats():
    some = [
        Row("nll_novels", 1024, seed, way, 0.25, 0.25, 0.0, nll, 0.1, "abc")
        for seed in range(3)
        for way, nll in (("ours", 3.5), ("h2o, ours", 3.4))
    ]
    assert "MISSED (e) 1024, 1/4, novels: nats less H2O's +0.100" in aims.judge(some, ["ours"])


def test_a_variant_is_shown_less_the_default(rng):
    some = [row("ours", accuracy=0.5, seed=s) for s in range(4)]
    some += [row("other", accuracy=0.75, seed=s) for s in range(4)]
    assert "other                   +25*+25.0*" in selection.compact(some, "ours", "other")


def test_the_best_variant_is_chosen_by_recall_over_all_parts():
    some = [row("a", 0.25, 0.9), row("a", 0.5, 0.1), row("b", 0.25, 0.6), row("b", 0.5, 0.6)]
    some.append(row("a", 0.5, 9.0, task="nll_logs"))
    assert table.choose(some, ["a", "b"]) == "b"
