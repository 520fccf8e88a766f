import pytest

torch = pytest.importorskip("torch")

from reproduction.studies import lookup, lookup_models  # noqa: E402

# The paper's counts, and as many for the fair rivals.
COUNTS = {
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
    return lookup.draw(rng, 3, "cpu")


@pytest.fixture
def make(seed):
    def make(name):
        torch.manual_seed(seed)
        return getattr(lookup_models, name)()

    return make


@pytest.mark.parametrize(("name", "count"), COUNTS.items())
def test_parameters_are_as_many_as_the_papers(make, name, count):
    assert sum(part.numel() for part in make(name).parameters()) == count


@pytest.mark.parametrize("name", COUNTS)
def test_a_model_answers_every_question_and_can_be_trained(make, batch, name):
    model = make(name)
    assert model(batch).shape == (3, lookup.QUERIES, lookup.CLASSES)
    model.loss(batch).backward()
    idle = {part for part, value in model.named_parameters() if value.grad is None}
    assert idle <= {"decay"}


def test_where_repeats_are_alike_the_rule_reads_as_attention_does(make, batch):
    assert torch.allclose(make("Rule")(batch), make("Attention")(batch), atol=1e-5)


def test_the_rule_and_the_novelty_gate_keep_first_occurrences(make, batch):
    first = torch.ones_like(batch.keys, dtype=torch.bool)
    for t in range(1, first.shape[1]):
        first[:, t] = (batch.keys[:, :t] != batch.keys[:, t : t + 1]).all(1)
    assert (make("Rule").kept(batch) == first).all()
    assert (make("Novelty").kept(batch) == first).all()


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
        wrong = torch.nn.functional.cross_entropy(answers, batch.answers.flatten())
        assert model.loss(batch) - wrong == pytest.approx(9.0, abs=1e-3)


def test_the_fixed_state_is_what_the_recurrence_leaves(make, batch):
    model, state = make("FixedState"), torch.zeros(3, lookup_models.WIDTH)
    for t in range(batch.keys.shape[1]):
        token = model.keys(batch.keys[:, t]) + model.classes(batch.classes[:, t])
        state = model.decay.sigmoid() * state + token
    found = model.leave(state[:, None] / 512**0.5 + model.keys(batch.queries))
    assert torch.allclose(model(batch), found, atol=1e-4)


@pytest.mark.parametrize("name", ["LinearAttention", "CosineAttention"])
def test_linear_attention_is_a_state_of_the_bytes_it_says(make, batch, name):
    model = make(name)
    q, k, v = model.parts(batch)
    state = k.mT @ v
    assert model.held(batch)[1] == 4 * state[0].numel()
    found = model.leave(q @ state / (4 * 128**0.5))
    assert torch.allclose(model(batch), found, atol=1e-3)


def test_bytes_are_a_key_and_a_value_for_each_token_kept(make, batch):
    assert make("Attention").held(batch) == (512, 524_288)
    assert make("Rule").held(batch) == (128, 131_072)
    assert make("CosineAttention").held(batch)[1] == 131_072
