"""The example keeps what is new and says of the rest why not."""

import runpy
from pathlib import Path

import pytest

main = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "dedup.py"))["main"]


def test_the_example_keeps_what_is_new_and_says_why_not(tmp_path, capsys):
    path = tmp_path / "lines"
    path.write_text("the door is open\nthe door is open!\nno such file\n")
    main([str(path)])
    said = capsys.readouterr()
    assert said.out == "the door is open\nno such file\n"
    assert "0.80 like 'the door is open': 'the door is open!'\n" in said.err


@pytest.mark.parametrize(
    ("given", "why"),
    [(["gone"], "gone cannot be read: "), ([__file__, "--similarity", "90"], "in [-1, 1], got 90")],
)
def test_what_is_wrong_is_told_in_one_line(given, why, capsys):
    with pytest.raises(SystemExit) as refused:
        main(given)
    assert refused.value.code == 2
    assert why in capsys.readouterr().err
