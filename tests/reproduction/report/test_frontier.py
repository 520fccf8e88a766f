import pytest

from reproduction.report import figures
from reproduction.studies import frontier
from reproduction.studies.runner import Scale


@pytest.fixture(scope="module")
def pictures(seed):
    return figures.pictures(frontier.run((seed, seed + 1), Scale("tiny", 0.02)))


def test_slots_come_first_then_bytes_and_both_kinds_of_lead(pictures):
    names = ["frontier-slots", "frontier-bytes", "frontier-lead", "frontier-growing"]
    assert [picture.name for picture in pictures] == names


def test_the_first_figure_names_every_policy_it_draws(pictures):
    text = pictures[0].inline()
    named = ("Distinct items (ours)", "Redundancy eviction", "H2O, tuned", "SubGen", "KeyDiff")
    assert all(name in text for name in named)


def test_states_are_in_the_figure_of_bytes_alone(pictures):
    slots, weighed, *leads = (picture.inline() for picture in pictures)
    assert "Fourier state" in weighed
    assert "Fourier state" not in slots + "".join(leads)


def test_every_figure_has_its_numbers_in_words(pictures):
    rival = ("Redundancy eviction", "Redundancy eviction", "Redundancy eviction", "SubGen")
    assert all(name in picture.alt for name, picture in zip(rival, pictures, strict=True))


def test_every_sentence_of_a_caption_begins_with_a_capital(pictures):
    sentences = [part for picture in pictures for part in picture.caption.split(". ")]
    assert all(part[0].isupper() for part in sentences)


def test_no_caption_calls_black_what_is_light_on_a_dark_page(pictures):
    assert not any("black" in picture.caption.lower() for picture in pictures)
