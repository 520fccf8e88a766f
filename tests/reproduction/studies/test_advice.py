import pytest

from reproduction.studies.advice import choose
from reproduction.studies.result import Measure
from reproduction.studies.strains import ALL, PLAIN, SAFE, Strain


def chosen(**measured):
    """The choice between settings, given the recall and the slots per item of each."""
    names = {"plain": PLAIN, "safe": SAFE, "all": ALL}
    found = {
        ("toy", 1.0, names.get(name, name)): {
            "recall": Measure(recall, 0.0, 2),
            "slots/item": Measure(slots, 0.0, 2),
        }
        for name, (recall, slots) in measured.items()
    }
    settings = {setting: None for _, _, setting in found}
    return choose(found, Strain("toy", "", "", {1.0: None}, settings), 1.0)


def test_the_fewest_slots_win_among_those_that_recall_the_most():
    assert chosen(plain=(1.0, 3.0), mean=(0.995, 1.2), ema=(0.5, 1.0)) == "mean"


def test_fewer_slots_than_items_are_no_saving():
    assert chosen(fine=(1.0, 1.0), coarse=(0.995, 0.97)) == "fine"


def test_of_equals_the_first_is_taken():
    assert chosen(plain=(1.0, 1.001), other=(1.0, 0.999)) == PLAIN


@pytest.mark.parametrize("yardstick", ["safe", "all"])
def test_a_yardstick_is_never_chosen(yardstick):
    assert chosen(plain=(0.9, 2.0), **{yardstick: (1.0, 1.0)}) == PLAIN
