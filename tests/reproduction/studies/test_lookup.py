import pytest

torch = pytest.importorskip("torch")

from reproduction.studies import lookup, lookup_models  # noqa: E402


@pytest.fixture
def batch(rng):
    return lookup.draw(rng, 3, "cpu")


def test_a_stream_has_128_keys_four_times_each(batch):
    for keys in batch.keys:
        _, times = keys.unique(return_counts=True)
        assert times.tolist() == [4] * 128


def test_a_key_has_one_class_and_it_is_the_answer(batch):
    same = batch.queries[..., None] == batch.keys[:, None]  # (B, Q, L)
    right = batch.answers[..., None] == batch.classes[:, None]
    assert (same.sum(-1) == 4).all()
    assert right[same].all()


def test_a_score_counts_right_answers(seed):
    class Oracle(lookup_models.Commonest):
        def forward(self, batch):
            return torch.nn.functional.one_hot(batch.answers, lookup.CLASSES)

    assert lookup.score(Oracle(), seed, 1, "cpu") == (1.0, 32, 128)


def test_a_guess_is_right_more_often_than_chance(seed):
    recall, *_ = lookup.score(lookup_models.Commonest(), seed, 4, "cpu")
    assert 1 / 32 < recall < 0.12


def test_training_lowers_the_loss(batch, seed):
    torch.manual_seed(seed)
    model = lookup_models.Attention()
    before = model.loss(batch).item()
    lookup.train(model, seed, 30, 2e-3, "cpu")
    assert model.loss(batch).item() < 0.8 * before
