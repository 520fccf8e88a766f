import pytest

from reproduction.studies import leading
from reproduction.studies.result import Measure


def leads_of(*means, sd=0.001):
    return {b: Measure(mean, sd, 9) for b, mean in zip(leading.BUDGETS, means, strict=False)}


@pytest.mark.parametrize(
    ("lead", "sd", "said"),
    [(0.02, 0.001, [16]), (0.004, 0.0, []), (0.02, 0.03, []), (-0.02, 0.001, [])],
)
def test_a_lead_is_seen_in_print_and_beyond_chance(lead, sd, said):
    assert leading.ahead(leads_of(lead, sd=sd)) == said


@pytest.mark.parametrize(
    ("means", "said"), [((0.1, 0.0), True), ((0.0, 0.0), False), ((0.1, -0.1), False)]
)
def test_to_dominate_is_never_to_trail_and_to_lead_somewhere(means, said):
    assert leading.dominates(leads_of(*means)) == said


@pytest.mark.parametrize(
    ("means", "word"),
    [((0.1, 0.2), "ahead at every size"), ((0.0, 0.001), "a tie"), ((0.1, -0.1), "behind at 32")],
)
def test_the_standing_follows_the_numbers(means, word):
    assert word in leading.standing("Rival", leads_of(*means))
