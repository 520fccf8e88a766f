import pytest

from reproduction.studies import drain


def test_without_drain3_the_way_out_is_told(monkeypatch):
    monkeypatch.setattr(drain, "present", lambda: False)
    with pytest.raises(ModuleNotFoundError, match="pip install 'drain3"):
        drain.drain3()


@pytest.mark.parametrize("setting", [drain.PLAIN, drain.MASKED, drain.BEST], ids=str)
def test_templates_are_those_of_the_end(setting):
    pytest.importorskip("drain3")
    groups, texts = drain.parse(["took 3 ms at once", "took 5 ms at once", "bye"], setting)
    assert groups == [1, 1, 2]
    assert texts == ["took <*> ms at once", "took <*> ms at once", "bye"]


def test_masks_are_seen_as_wildcards():
    pytest.importorskip("drain3")
    assert drain.parse(["from 10.0.0.1 to 0xff"], drain.MASKED)[1] == ["from <*> to <*>"]
    assert drain.parse(["from 10.0.0.1 to 0xff"])[1] == ["from 10.0.0.1 to 0xff"]


def test_a_limit_forgets_clusters():
    pytest.importorskip("drain3")
    lines = ["one alone", "two by two", "one alone"]
    assert drain.parse(lines, drain.Setting(limit=1))[0] == [1, 2, 3]
    assert drain.parse(lines)[0] == [1, 2, 1]


def test_words_are_parted_at_the_delimiters():
    pytest.importorskip("drain3")
    lines = ["took:3 ms=a", "took:5 ms=b"]
    assert drain.parse(lines, drain.Setting(delimiters="=:"))[1] == ["took <*> ms <*>"] * 2
    assert drain.parse(lines)[1] == lines


def test_a_setting_says_what_it_is():
    assert str(drain.PLAIN) == "no masking, depth 4, similarity 0.4"
    assert str(drain.Setting(limit=9)).endswith(", at most 9 clusters")
