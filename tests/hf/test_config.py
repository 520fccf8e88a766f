import json
from math import inf, nan

import numpy as np
import pytest

from distinctkv import Concentration
from distinctkv.hf.config import Plan


def test_without_a_wish_the_threshold_is_one():
    assert Plan().threshold == 1.0


@pytest.mark.parametrize("threshold", [-0.5, inf, nan])
def test_a_threshold_is_a_finite_number_of_0_or_more(threshold):
    with pytest.raises(ValueError, match=f"threshold must be .*{threshold}"):
        Plan(threshold=threshold)


@pytest.mark.parametrize("kept", [0, -0.1, 1.01])
def test_kept_is_a_part(kept):
    with pytest.raises(ValueError, match=rf"\(0, 1\], got {kept}; 0.25 holds a quarter"):
        Plan(kept=kept)


def test_nan_is_told_the_rule_and_the_way_out():
    with pytest.raises(ValueError, match=r"0 or more, got nan; to merge nothing say kept=1\.0"):
        Plan(threshold=nan)
    with pytest.raises(ValueError, match=r"\(0, 1\], got nan; 0.25 holds a quarter"):
        Plan(kept=nan)


@pytest.mark.parametrize("wrong", [{"kept": "half"}, {"threshold": True}, {"budget": 50.0}])
def test_what_is_no_number_is_a_type_error(wrong):
    with pytest.raises(TypeError, match="must be a"):
        Plan(**wrong)


def test_a_budget_has_room_for_what_is_never_merged():
    with pytest.raises(ValueError, match="at least 37"):
        Plan(budget=36)
    assert Plan(budget=37).budget == 37


def test_whole_numbers_of_numpy_are_whole_numbers():
    plan = Plan(budget=np.int64(50), sinks=np.int32(2), recent=np.uint8(8))
    assert json.loads(json.dumps(plan.state()))["budget"] == 50
    assert plan == Plan(budget=50, sinks=2, recent=8)


def test_two_sizes_at_once_are_refused():
    with pytest.raises(ValueError, match="threshold and kept; choose one"):
        Plan(threshold=1.0, kept=0.5)


def test_negative_sinks_are_refused():
    with pytest.raises(ValueError, match="sinks must be at least 0, got -1"):
        Plan(sinks=-1)


def test_surprise_is_a_concentration_with_room():
    with pytest.raises(TypeError, match=r"Concentration.surprise\("):
        Plan(surprise=0.5)
    with pytest.raises(ValueError, match="base must be at least"):
        Plan(surprise=Concentration.surprise(1.0, base=8))
    with pytest.raises(ValueError, match=r"base must be finite, got inf.*or threshold=1.0"):
        Plan(surprise=Concentration.fixed(0.5))


def test_a_plan_survives_json():
    plan = Plan(surprise=Concentration.surprise(1.0, base=64), sinks=2)
    assert Plan.of(json.loads(json.dumps(plan.state()))) == plan
