import pytest

torch = pytest.importorskip("torch")

from reproduction.baselines import Delta  # noqa: E402
from reproduction.studies import counting, counting_models  # noqa: E402


@pytest.fixture
def batch(rng):
    return counting.draw(rng, 5, "cpu")


@pytest.fixture
def models(seed):
    torch.manual_seed(seed)
    return counting_models.made()


def test_every_model_answers_every_question_and_counts(models, batch):
    for model in models.values():
        classes, count = model(batch)
        assert classes.shape == (5, counting.TASK.n_items, counting.CLASSES)
        assert count.shape == (5,)


def test_every_parameter_is_trained(models, batch):
    for name, model in models.items():
        counting.loss(model, batch).backward()
        idle = [part for part, value in model.named_parameters() if value.grad is None]
        assert not idle, (name, idle)


def test_the_state_is_what_the_recurrence_leaves(batch, seed):
    torch.manual_seed(seed)
    backbone = counting_models.DiagonalSum()
    state = torch.zeros(5, counting_models.STATE)
    for t in range(counting.LENGTH):
        state = backbone.decay.sigmoid() * state + backbone.enter(batch.tokens[:, t])
    found = backbone(batch.tokens) * counting.LENGTH
    assert torch.allclose(found, state, atol=1e-4)


def test_the_delta_state_is_that_of_the_peer(batch, models):
    memory = models["delta"].memory
    keys = torch.nn.functional.normalize(memory.features(batch.keys), dim=-1)
    state = memory.state(memory.features(batch.keys), batch.values)
    peer = Delta(rate=memory.rate.sigmoid().item())
    peer.write(keys[0].detach().numpy(), batch.values[0].numpy())
    read = torch.from_numpy(peer.read(keys[0].detach().numpy())).float()
    assert torch.allclose(keys[0] @ state[0].mT, read, atol=1e-4)


def test_slots_are_one_for_each_item_and_bytes_are_those_of_all_that_is_held(models, batch):
    slots, size = models["hybrid"].held(batch)
    assert slots == pytest.approx(counting.TASK.n_items, abs=0.5)
    assert size == pytest.approx(4 * (48 + 40 * slots))
    assert models["ssm"].held(batch) == (48, 192)
    assert models["attention"].held(batch) == (72, 4 * 72 * 41)


def test_a_matrix_on_cosines_has_the_bytes_of_24_slots(models, batch):
    assert models["waves"].held(batch)[1] == 4 * (48 + 24 * 40)


def test_slots_that_are_all_tokens_read_as_attention_does(batch, models, monkeypatch):
    monkeypatch.setattr(counting_models, "TAU", -1.0)
    slots = models["hybrid"].memory
    tokens = counting_models.FromTokens()
    tokens.load_state_dict(slots.state_dict())
    none = torch.zeros(5, counting_models.STATE)
    assert torch.equal(slots(batch, none), tokens(batch, none))
