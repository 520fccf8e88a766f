from dataclasses import replace

import pytest

pytest.importorskip("torch")

from reproduction.report import mqar
from reproduction.studies import mqar as study
from reproduction.studies.mqar_models import SMALL
from reproduction.studies.runner import QUICK

TINY = replace(
    SMALL, width=16, head=16, states=(4, 4), steps=1, batch=2, items=(2,), tokens=16,
    asked=((2, 16), (2, 64), (4, 32), (6, 48), (8, 64), (2, 8), (6, 24)),
)  # fmt: skip


def test_every_model_has_its_line_and_its_words(seed, monkeypatch):
    monkeypatch.setattr(study, "size_of", lambda scale: TINY)
    monkeypatch.setattr(study, "n_sequences", lambda tokens: 2)
    picture = mqar.pictures(study.run(range(seed, seed + 2), QUICK))[0]
    drawn = picture.inline()
    assert all(case.label in drawn and case.label in picture.alt for case in study.METHODS)
    assert "KiB" in drawn
    assert picture.title in drawn
    assert "1 steps (2 seeds)" in picture.caption
    assert drawn.count("K=8") == 2  # fixed states, Mamba-2 and DeltaNet; the window still grows
