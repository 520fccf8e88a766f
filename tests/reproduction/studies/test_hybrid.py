import numpy as np
import pytest
import torch

from reproduction.baselines import Delta
from reproduction.result import Result
from reproduction.studies import hybrid as study
from reproduction.studies.runner import QUICK

METHODS = {method.name: method for method in (*study.METHODS, *study.CONTROLS)}


@pytest.fixture
def batch(rng):
    return study.draw(rng, 5, "cpu")


@pytest.fixture
def make(seed):
    def make(name):
        torch.manual_seed(seed)
        return METHODS[name].make()

    return make


@pytest.fixture(scope="module")
def short(seed):
    """All models, hardly trained."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "STEPS", 2)
        patch.setattr(study, "TEST_STREAMS", 8)
        steps = []
        result = study.run(range(seed, seed + 9), QUICK, lambda *step: steps.append(step))
    return result, steps


def test_a_quick_run_has_five_seeds_and_reports_its_progress(short):
    result, steps = short
    assert len(result.seeds) == 5
    seeds = {row.name: next(iter(row.measures.values())).n for row in result.rows}
    assert (seeds["hybrid"], seeds["every"], seeds["matrix"]) == (5, 5, 3)
    assert steps == [(done, 10) for done in range(1, 11)]
    assert Result.from_json(result.to_json()) == result


def test_every_number_of_the_paper_is_judged(short):
    assert {claim.row for claim in short[0].claims} == {"ssm", "attention", "hybrid", "memory"}
    assert len(short[0].claims) == 11


def test_controls_have_recall_alone_and_repeat_the_first_row(short):
    rows = {(row.table, row.name): row.measures for row in short[0].rows}
    assert rows["controls", "every"] == {"recall": rows["models", "ssm"]["recall"]}


# Streams


def test_every_item_comes_three_times_with_one_class(batch):
    assert (torch.nn.functional.one_hot(batch.items).sum(1) == study.TASK.repeats).all()
    classes = batch.values.argmax(-1)
    for item in range(study.TASK.n_items):
        of_item = classes[batch.items == item].reshape(len(classes), -1)
        assert (of_item == batch.labels[:, item : item + 1]).all()


def test_tokens_of_an_item_are_nearer_than_tau_and_others_are_not(batch):
    near = (batch.keys @ batch.keys.mT) > 1 - study.TAU
    same = batch.items[:, None] == batch.items[..., None]
    assert near[same].all()
    assert (near & ~same).float().mean() < 0.01


def test_a_query_is_the_item_whose_class_is_its_answer(batch):
    nearest = (batch.queries @ batch.keys.mT).argmax(-1)
    assert (batch.items.gather(1, nearest) == torch.arange(study.TASK.n_items)).all()
    assert (batch.answers == batch.labels).all()
    assert (batch.with_one_query().answers == batch.answers[:, :1]).all()


def test_marks_differ_in_frequency_from_stream_to_stream(rng):
    marked = study.draw(rng, 200, "cpu").marked
    assert marked.min() < 0.1
    assert marked.max() > 0.9


def test_balanced_classes_leave_the_majority_guess_at_chance(rng):
    batch = study.draw(rng, 50, "cpu")
    balanced = batch.balanced(rng)
    assert study.score(study.MajorityGuess(), balanced)[0] == pytest.approx(1 / study.CLASSES)
    assert study.score(study.MajorityGuess(), batch)[0] > 1.5 / study.CLASSES
    assert balanced.keys is batch.keys


# Training


class Oracle(study.Model):
    """Right in all classes; right in the count, or at its mean."""

    def __init__(self, counts):
        super().__init__()
        self.counts = counts

    def forward(self, batch):
        marked = batch.marked if self.counts else batch.marked.mean().expand(len(batch.keys))
        return torch.nn.functional.one_hot(batch.answers).float(), marked

    def state_size(self, batch):
        return 2.0, 8.0


@pytest.mark.parametrize(("counts", "r2"), [(True, 1.0), (False, 0.0)])
def test_a_score_of_one_is_perfect_and_the_mean_explains_nothing(batch, counts, r2):
    assert study.score(Oracle(counts), batch) == pytest.approx((1.0, r2, 2.0, 8.0), abs=1e-6)


def test_training_lowers_the_loss_and_ticks_at_every_step(batch, make, seed):
    model, ticks = make("attention"), []
    before = study.loss(model, batch).item()
    study.train({"attention": model}, seed, 60, "cpu", lambda: ticks.append(1))
    assert study.loss(model, batch).item() < 0.8 * before
    assert len(ticks) == 60


def test_models_of_a_seed_train_as_they_would_alone(make, seed):
    def train(*names):
        models = {name: make(name) for name in names}
        study.train(models, seed, 3, "cpu", lambda: None)
        return study.score(models["ssm"], study.draw(np.random.default_rng(seed), 20, "cpu"))

    assert train("ssm") == train("ssm", "once", "level", "delta")


# Models


@pytest.mark.parametrize("name", METHODS)
def test_a_model_answers_every_query_and_trains_every_parameter(make, batch, name):
    model = make(name)
    classes, count = model(batch)
    assert classes.shape == (5, study.TASK.n_items, study.CLASSES)
    assert count.shape == batch.marked.shape or name == "guess"
    if [*model.parameters()]:
        study.loss(model, batch).backward()
    assert all(value.grad is not None for value in model.parameters())


def test_the_state_is_what_the_recurrence_leaves(batch, seed):
    torch.manual_seed(seed)
    backbone = study.DiagonalSSM()
    state = torch.zeros(5, study.STATE)
    for t in range(study.LENGTH):
        state = backbone.decay.sigmoid() * state + backbone.project_in(batch.tokens[:, t])
    assert torch.allclose(backbone(batch.tokens) * study.LENGTH, state, atol=1e-4)


def test_the_delta_state_is_that_of_the_baseline(batch, make):
    memory = make("delta").memory
    keys = torch.nn.functional.normalize(memory.features(batch.keys), dim=-1)
    state = memory.state(memory.features(batch.keys), batch.values)
    baseline = Delta(rate=memory.rate.sigmoid().item())
    baseline.write(keys[0].detach().numpy(), batch.values[0].numpy())
    read = torch.from_numpy(baseline.read(keys[0].detach().numpy())).float()
    assert torch.allclose(keys[0] @ state[0].mT, read, atol=1e-4)


def test_sizes_are_those_of_all_that_is_held(make, batch):
    slots, size = make("hybrid").state_size(batch)
    assert slots == pytest.approx(study.TASK.n_items, abs=0.5)
    assert size == pytest.approx(4 * (48 + 40 * slots))
    assert make("ssm").state_size(batch) == (48, 192)
    assert make("attention").state_size(batch) == (72, 4 * 72 * 41)
    assert make("waves").state_size(batch)[1] == 4 * (48 + 24 * 40)  # the bytes of 24 slots


def test_slots_that_are_all_tokens_read_as_attention_does(batch, make, monkeypatch):
    monkeypatch.setattr(study, "TAU", -1.0)
    slots = make("hybrid").memory
    tokens = study.AttentionMemory()
    tokens.load_state_dict(slots.state_dict())
    none = torch.zeros(5, study.STATE)
    assert torch.equal(slots(batch, none), tokens(batch, none))
