import pytest

from distinctkv.studies import drain


def test_without_drain3_the_way_out_is_told(monkeypatch):
    monkeypatch.setattr(drain, "present", lambda: False)
    with pytest.raises(ModuleNotFoundError, match="pip install 'drain3"):
        drain.drain3()


@pytest.mark.parametrize("masked", [False, True])
def test_templates_are_those_of_the_end(masked):
    pytest.importorskip("drain3")
    groups, texts = drain.parse(["took 3 ms at once", "took 5 ms at once", "bye"], masked)
    assert groups == [1, 1, 2]
    assert texts == ["took <*> ms at once", "took <*> ms at once", "bye"]


def test_masks_are_seen_as_wildcards():
    pytest.importorskip("drain3")
    assert drain.parse(["from 10.0.0.1 to 0xff"], masked=True)[1] == ["from <*> to <*>"]
    assert drain.parse(["from 10.0.0.1 to 0xff"])[1] == ["from 10.0.0.1 to 0xff"]
