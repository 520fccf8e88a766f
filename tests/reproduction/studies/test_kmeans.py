import pytest

from reproduction.result import Result
from reproduction.studies import kmeans
from reproduction.studies.runner import FULL, QUICK, Scale


@pytest.fixture(scope="module")
def tiny(seed):
    return kmeans.run((seed, seed + 1), Scale("tiny", 0.02))


@pytest.fixture(scope="module")
def points(tiny):
    return {row.name: row.measures for row in tiny.tables["points"]}


def test_there_is_a_row_for_each_start_and_for_the_cache(tiny):
    names = ["random", "random_10", "spread", "spread_10", "dp_mean", "dp"]
    assert [row.name for row in tiny.tables["points"]] == names
    assert [row.name for row in tiny.tables["sizes"]] == names


def test_only_k_means_holds_every_token(points):
    assert points["random"]["peak"].mean == kmeans.TASK.n_tokens
    assert points["dp"]["peak"].mean == pytest.approx(64, abs=0.5)


def test_better_starts_recall_more(points):
    recalls = [points[name]["recall"].mean for name in ("random", "spread", "spread_10")]
    assert recalls == sorted(recalls)


def test_a_setting_says_how_the_fit_starts(tiny):
    settings = {row.name: row.setting for row in tiny.tables["points"]}
    assert settings["random"] == "M=64, started at random tokens, 1 try"
    assert settings["spread_10"] == "M=64, started at k-means++, 10 tries"


def test_only_what_the_paper_has_is_checked(tiny):
    assert {claim.row for claim in tiny.claims} == {"random", "dp", "low", "near"}


def test_a_result_can_be_read_back(tiny):
    assert Result.from_json(tiny.to_json()) == tiny


@pytest.mark.slow
@pytest.mark.parametrize("scale", [QUICK, FULL], ids=lambda scale: scale.name)
def test_the_papers_comparison_holds_where_we_say_so(scale):
    claims = kmeans.run(range(10), scale).claims
    assert {claim.verdict for claim in claims} == {"holds"}
