from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from distinctkv.nn.scheduled import ScheduledAttention
from reproduction.studies import mqar as study
from reproduction.studies import mqar_asking as asking
from reproduction.studies import mqar_models as models
from reproduction.studies.result import Result
from reproduction.studies.study import QUICK

TINY = replace(
    models.SMALL, width=16, head=16, states=(4, 4), steps=2, batch=2, items=(2,), tokens=16,
    asked=((2, 16), (2, 64), (4, 32), (6, 48), (8, 64), (2, 8), (6, 24)),
)  # fmt: skip


@pytest.fixture(scope="module")
def short(seed):
    """All models, hardly trained."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "size_of", lambda scale: TINY)
        patch.setattr(asking, "asked", lambda tokens: 2)
        seen = []
        found = study.run(range(seed, seed + 9), QUICK, lambda *step: seen.append(step))
    return found, seen


def test_a_quick_run_has_two_seeds_and_tells_its_progress(short):
    result, seen = short
    total = 2 * len(study.CASES)
    assert len(result.seeds) == 2
    assert seen == [(done, total) for done in range(1, total + 1)]


def test_every_table_has_its_rows(short):
    tables = short[0].tables
    names = [case.name for case in study.CASES]
    assert list(tables) == list(study.HEADINGS)
    for table in ("recall", "bytes"):
        assert [row.name for row in tables[table]] == names
    assert {row.name for row in tables["kinds"]} == {*names, "newest"}
    assert [row.name for row in tables["tau"]] == [f"{tau:g}" for tau in asking.TAUS]


def test_rules_with_a_schedule_hold_no_more_than_ours(short):
    """The same slots at every size; ours has a count more, and rounds no slot up."""
    rows = {row.name: row for row in short[0].tables["bytes"]}
    slot = 4 * 2 * 16 + 8
    for name in ("kvm", "ovq"):
        for column, held in rows[name].measures.items():
            assert held.mean < rows["mass"].measures[column].mean + 16 * slot


def test_at_tau_0_every_token_that_differs_has_a_slot(short):
    rows = {row.name: row.measures["slots"].mean for row in short[0].tables["tau"]}
    assert rows["0"] > rows["0.15"] > rows["0.5"]


def test_fewer_bits_are_fewer_bytes(short):
    held = {row.name: row.measures["bytes"].mean for row in short[0].tables["bits"]}
    assert held["bfloat16_first"] < held["bfloat16"] < held["float32"] == held["float32_first"]


def test_a_result_can_be_read_back(short):
    assert Result.from_json(short[0].to_json()) == short[0]


def test_every_claim_has_its_number(short):
    rows = {row.name for row in short[0].tables["paper"]}
    assert {claim.row for claim in short[0].claims} == rows


@pytest.mark.parametrize("name", models.NAMES)
def test_a_model_says_what_it_holds(name, seed):
    model = models.made(name, TINY).eval()
    models.fit(model, 20, 64)
    found = models.ask(model, np.random.default_rng(seed), models.task(TINY, 8, 64), 2)
    assert 0 <= found.recall <= 1
    assert found.bytes > 0
    if isinstance(model.mixers[1], ScheduledAttention):
        assert found.slots == 20
    if name == "full":
        assert found.slots == 64


def test_a_longer_sequence_is_read_in_pieces(monkeypatch, seed):
    model = models.made("mass", TINY).eval()
    drawn = models.task(TINY, 8, 64)
    whole = models.ask(model, np.random.default_rng(seed), drawn, 3)
    monkeypatch.setattr(models, "PIECE", 10)
    pieces = models.ask(model, np.random.default_rng(seed), drawn, 3)
    assert pieces.recall == whole.recall
    assert pieces.slots == whole.slots


@pytest.mark.parametrize("name", ["mass", "gated", "kvm", "full", "window"])
def test_keys_start_as_the_token_before_theirs(name, seed):
    torch.manual_seed(seed)
    project = models.made(name, TINY).mixers[1].project.eval()
    x = torch.randn(1, 6, 16)
    other = x.clone()
    other[:, 3] += 1
    (q, k, _, _), (q2, k2, _, _) = project(x), project(other)
    assert (k != k2).flatten(2).any(2).tolist() == [[False] * 4 + [True, False]]
    assert not torch.equal(q[:, 3], q2[:, 3])


def test_a_lag_beyond_the_convolution_is_refused():
    with pytest.raises(ValueError, match="2 taps sees no token 2 places before"):
        models.made("mass", replace(TINY, taps=2, lag=2))


def test_two_slots_an_item_are_enough_to_recall_more_of_them_than_in_training(seed):
    """One for the token after the key, one for the token after the value."""
    size = replace(models.SMALL, steps=120)
    model = models.trained("mass", seed, size, "cpu", 1.0)
    found = models.ask(model, np.random.default_rng(seed), models.task(size, 32, 256), 4)
    assert found.recall > 0.95
    assert found.slots < 2.2 * 32


def test_a_part_of_the_bytes_is_no_more_than_that(seed, monkeypatch):
    monkeypatch.setattr(asking, "asked", lambda tokens: 1)
    model = models.made("ovq", TINY).eval()
    rows = asking.squeezed(model, TINY, seed, (8, 64), 8000.0)
    for (_, part), found in rows.items():
        assert 0.8 * float(part) * 8000 < found["bytes"] <= float(part) * 8000
