import pytest

from reproduction.studies import device as module
from reproduction.studies import load
from reproduction.studies.study import FULL, QUICK


def test_without_torch_there_is_no_device(monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    assert module.device() == "absent"


@pytest.mark.parametrize("name", ["gates", "hybrid", "five_models", "mqar"])
def test_without_torch_nothing_is_measured(monkeypatch, name):
    study = load(name)
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    if hasattr(study, "find_spec"):
        monkeypatch.setattr(study, "find_spec", lambda name: None)
    result = study.run(range(2))
    assert result.absent == ("torch",)
    assert not result.rows


@pytest.mark.slow
@pytest.mark.parametrize("scale", [QUICK, FULL])
@pytest.mark.parametrize("name", ["hybrid", "five_models", "mqar"])
def test_what_we_say_of_the_paper_is_so(name, scale):
    pytest.importorskip("torch")
    result = load(name).run(range(10), scale)
    assert [claim.id for claim in result.claims if not claim.passes] == []
