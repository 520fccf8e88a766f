import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from math import inf

import torch

from benchmarks.llm import ours
from benchmarks.llm.kv_states import hold_by, read
from benchmarks.llm.questions import ask
from benchmarks.llm.recipe import SINKS, Recipe, policy
from distinctkv.hf import FAST, MergePolicy, distinct_cache
from tests.hf.models import build

QUESTIONS = (((7, 8, 9), (10,)), ((11,), (12, 13, 14)))


@pytest.fixture(scope="module")
def model(seed):
    return build(seed)


@pytest.fixture(scope="module")
def context(model, seed):
    """Lines of which few are distinct."""
    generator = torch.Generator().manual_seed(seed)
    lines = torch.randint(2, 64, (12, 6), generator=generator)
    ids = lines[torch.randint(0, 12, (30,), generator=generator)].reshape(1, -1)
    return read(model, ids)


@pytest.fixture(autouse=True)
def no_grad():
    with torch.no_grad():
        yield


POLICIES = [
    FAST,
    policy(importance=0.5),
    policy(horizon=64.0),
    policy(attention_mean=True),
    MergePolicy(horizon=64.0),
    MergePolicy(),
]


@pytest.mark.parametrize("merge", POLICIES, ids=str)
@pytest.mark.parametrize("threshold", [0.01, 0.3])
def test_all_layers_at_once_have_the_slots_of_the_cache(model, context, merge, threshold):
    theirs = hold_by(distinct_cache(model, threshold=threshold, merge=merge), context)
    check_alike(ours.held(ours.prepare(model, context), Recipe(merge), threshold), theirs)


@pytest.mark.parametrize("recent", [0, 5, 64])
def test_as_many_of_the_newest_are_left_as_by_the_cache(model, context, recent):
    cache = distinct_cache(model, threshold=0.3, recent=recent)
    recipe = Recipe(MergePolicy(), recent=recent)
    made = ours.prepare(model, context)
    ours.held(made, Recipe(MergePolicy()), 0.3)  # another number of them first
    check_alike(ours.held(made, recipe, 0.3), hold_by(cache, context))


def check_alike(mine, theirs):
    for one, other in zip(mine, theirs, strict=True):
        here, there = one.bias > -inf, other.bias > -inf
        assert torch.equal(here.sum(1), there.sum(1))
        torch.testing.assert_close(one.bias[here], other.bias[there])
        torch.testing.assert_close(one.keys[here], other.keys[there])
        torch.testing.assert_close(one.values[here], other.values[there], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("recent", [32, 4, None])
@pytest.mark.parametrize("part", [0.7, 0.4])
def test_a_part_is_met_as_the_cache_meets_it(model, context, part, recent):
    (mine,) = ours.by_part(Recipe(recent=recent))(model, context, [part])
    total = len(context) * sum(one.keys.shape[1] for one in context.layers)
    kept = sum(one.n_slots for one in mine) / total
    assert 0.95 * part < kept <= part


def test_a_part_is_met_whatever_was_looked_at_before(model, context):
    fresh, used = ours.Prepared(model, context), ours.Prepared(model, context)
    for threshold in (-1.0, 0.0, 0.3):
        used.look(Recipe(), threshold)
    goal = fresh.look(Recipe(), fresh.search(Recipe(), 0.4)).lengths.sum()
    assert abs(used.look(Recipe(), used.search(Recipe(), 0.4)).lengths.sum() - goal) <= 0.05 * goal


def test_recipes_that_merge_alike_look_once(model, context):
    made = ours.Prepared(model, context)
    for recipe in (Recipe(), Recipe(key="last"), Recipe(value="own"), Recipe(count=0.0)):
        ours.held(made, recipe, 0.3)
    assert [list(looks) for looks in made.looks.values()] == [[0.3]]


RECIPES = [
    Recipe(key="last"),
    Recipe(key="heaviest"),
    Recipe(value="own"),
    Recipe(policy(attention_mean=True)),
    Recipe(count=0.0),
    Recipe(peak=0.5),
    Recipe(policy(horizon=64.0)),
]


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_where_nothing_is_merged_all_recipes_are_one(model, context, recipe):
    made = ours.prepare(model, context)
    plain = ours.held(made, Recipe(), -1.0)
    other = ours.held(made, recipe, -1.0)
    first, second = ask(model, [plain, other], len(context), QUESTIONS)
    for one, two in zip(first, second, strict=True):
        assert one.nll == pytest.approx(two.nll, abs=1e-3)


def test_the_last_token_of_a_slot_can_stand_for_it(model, context):
    made = ours.prepare(model, context)
    choice = made.look(Recipe(), 0.3)
    layer = context.layers[0]
    (held, *_) = ours.held(made, Recipe(key="last"), 0.3)
    slot = int(choice.owner[0].mode().values)
    last = int((choice.owner[0] == slot).nonzero().max()) + SINKS
    assert (choice.owner[0] == slot).sum() > 1
    assert torch.equal(held.keys[0, slot], layer.keys[0, 0, last])


def test_a_value_of_its_own_is_that_of_the_key(model, context):
    made = ours.prepare(model, context)
    (held, *_) = ours.held(made, Recipe(value="own"), 0.3)
    layer = context.layers[0]
    slot = int(made.look(Recipe(), 0.3).owner[0].mode().values)
    place = (layer.keys[0, 0] == held.keys[0, slot]).all(-1).nonzero()[0, 0]
    assert torch.equal(held.values[0, slot], layer.values[0, 0, place])


def test_a_horizon_keeps_what_is_far_apart(model, context):
    made = ours.prepare(model, context)
    near, far = (
        int(made.look(Recipe(policy(horizon=horizon)), 0.3).lengths.sum())
        for horizon in (4.0, None)
    )
    assert near > far
