from dataclasses import replace

import pytest
import torch

from distinctkv.nn.allocation import allocate, unit
from distinctkv.nn.soft import causal_novelty
from reproduction.result import Result
from reproduction.studies import five_models as study
from reproduction.studies.runner import QUICK

# The paper's parameter counts, and as many for the added baselines.
PARAMETERS = {
    "FixedState": 73_888,
    "BoundState": 73_888,
    "Attention": 123_424,
    "Rule": 123_424,
    "Saliency": 140_065,
    "Novelty": 123_426,
    "LinearAttention": 123_424,
    "CosineAttention": 123_424,
}


@pytest.fixture
def batch(rng):
    return study.draw(rng, 3, "cpu")


@pytest.fixture
def make(seed):
    def make(name):
        torch.manual_seed(seed)
        return getattr(study, name)()

    return make


@pytest.fixture(scope="module")
def short(seed):
    """All models, hardly trained."""
    with pytest.MonkeyPatch.context() as patch:
        trainings = tuple(replace(one, steps=min(one.steps, 1)) for one in study.TRAININGS)
        patch.setattr(study, "TRAININGS", trainings)
        patch.setattr(study, "TEST_BATCHES", 1)
        steps = []
        result = study.run(range(seed, seed + 9), QUICK, lambda *step: steps.append(step))
    return result, steps


def test_a_quick_run_has_five_seeds_and_reports_its_progress(short):
    result, steps = short
    total = len(study.TRAININGS)
    assert len(result.seeds) == 5
    assert {(row.role == "added", row.measures["recall"].n) for row in result.rows} == {
        (True, 3),
        (False, 5),
    }
    assert steps == [(done, total) for done in range(1, total + 1)]
    assert Result.from_json(result.to_json()) == result


def test_slots_and_parameters_are_the_papers_whatever_the_training(short):
    claims = [claim for claim in short[0].claims if claim.measure != "recall"]
    assert len(claims) == 10
    assert all(claim.verdict == "holds" for claim in claims)


# Streams


def test_a_stream_has_128_keys_four_times_each(batch):
    for keys in batch.keys:
        assert keys.unique(return_counts=True)[1].tolist() == [4] * 128


def test_a_key_has_one_class_and_it_is_the_answer(batch):
    same = batch.queries[..., None] == batch.keys[:, None]  # (B, Q, L)
    right = batch.answers[..., None] == batch.classes[:, None]
    assert (same.sum(-1) == 4).all()
    assert right[same].all()


def test_a_score_counts_right_answers(seed):
    class Oracle(study.MajorityGuess):
        def forward(self, batch):
            return torch.nn.functional.one_hot(batch.answers, study.CLASSES)

    assert study.score(Oracle(), seed, 1, "cpu") == (1.0, 32, 128)
    assert 1 / 32 < study.score(study.MajorityGuess(), seed, 4, "cpu")[0] < 0.12


def test_training_lowers_the_loss(batch, make, seed):
    model = make("Attention")
    before = model.loss(batch).item()
    study.train(model, seed, 30, 2e-3, "cpu")
    assert model.loss(batch).item() < 0.8 * before


# Models


@pytest.mark.parametrize(("name", "count"), PARAMETERS.items())
def test_a_model_has_the_papers_parameters_answers_and_can_be_trained(make, batch, name, count):
    model = make(name)
    assert sum(part.numel() for part in model.parameters()) == count
    assert model(batch).shape == (3, study.QUERIES, study.CLASSES)
    model.loss(batch).backward()
    unused = {part for part, value in model.named_parameters() if value.grad is None}
    assert unused <= {"decay"}


def test_the_rule_and_the_novelty_gate_keep_first_occurrences(make, batch):
    first = torch.ones_like(batch.keys, dtype=torch.bool)
    for t in range(1, first.shape[1]):
        first[:, t] = (batch.keys[:, :t] != batch.keys[:, t : t + 1]).all(1)
    assert (make("Rule").kept(batch) == first).all()
    assert (make("Novelty").kept(batch) == first).all()
    # Where repeats are identical, the rule reads as attention does.
    assert torch.allclose(make("Rule")(batch), make("Attention")(batch), atol=1e-5)


def test_saliency_keeps_whole_groups_of_repeats(make, batch):
    kept = make("Saliency").kept(batch)
    for keys, some in zip(batch.keys, kept, strict=True):
        assert keys[some].unique(return_counts=True)[1].tolist() == [4] * 32


def test_a_gated_model_trains_on_a_budget(make, batch):
    model = make("Novelty")
    with torch.no_grad():
        model.gate.threshold.fill_(-50.0)  # keeps all 512, four times the budget
        log_gate = model.log_gate(batch)
        answers = model.read(batch, log_gate, None).flatten(0, 1)
        cross_entropy = torch.nn.functional.cross_entropy(answers, batch.answers.flatten())
        assert model.loss(batch) - cross_entropy == pytest.approx(9.0, abs=1e-3)


def test_the_rule_and_the_novelty_are_those_of_all_tokens(make, batch):
    """They are computed at first occurrences, because repeats are identical."""
    rule, gate = make("Rule"), make("Novelty")
    with torch.no_grad():
        rule.keys.weight[1::2] = rule.keys.weight[::2] + 0.1  # pairs of keys share a slot
    every = unit(rule.keys.weight.detach())[batch.keys][:, :, None]
    lead = allocate(every, study.TAU).check().lead[..., 0]
    assert 64 <= lead.sum(1).float().mean() < 128
    assert (rule.kept(batch) == lead).all()
    every = unit(gate.keys.weight.detach())[batch.keys][:, :, None]
    expected = gate.gate(causal_novelty(every)[..., 0], every[..., 0, :])
    assert torch.allclose(gate.log_gate(batch), expected, atol=1e-5)


def test_the_fixed_state_is_what_the_recurrence_leaves(make, batch):
    model, state = make("FixedState"), torch.zeros(3, study.WIDTH)
    for t in range(batch.keys.shape[1]):
        token = model.keys(batch.keys[:, t]) + model.classes(batch.classes[:, t])
        state = model.decay.sigmoid() * state + token
    found = model.readout(state[:, None] / 512**0.5 + model.keys(batch.queries))
    assert torch.allclose(model(batch), found, atol=1e-4)


@pytest.mark.parametrize("name", ["LinearAttention", "CosineAttention"])
def test_linear_attention_is_a_state_of_the_reported_bytes(make, batch, name):
    model = make(name)
    _, _, v = model.parts(batch)
    q = model.features(model.q(model.keys(batch.queries)))
    state = model.features(model.k(model.keys(batch.keys))).mT @ v
    assert model.state_size(batch)[1] == 4 * state[0].numel()
    found = model.readout(q @ state / (4 * 128**0.5))
    assert torch.allclose(model(batch), found, atol=1e-3)


def test_bytes_are_a_key_and_a_value_for_each_token_kept(make, batch):
    assert make("Attention").state_size(batch) == (512, 524_288)
    assert make("Rule").state_size(batch) == (128, 131_072)
    assert make("CosineAttention").state_size(batch)[1] == 131_072


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["rule", "gate", "cosine"])
def test_a_model_trains_on_the_device(name, seed):
    training = next(one for one in study.TRAININGS if one.name == name)
    recall, *_ = study.measure(training, seed)
    assert study.device() == "cuda"
    assert recall > 0.99
