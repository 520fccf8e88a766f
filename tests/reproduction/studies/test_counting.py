import numpy as np
import pytest

torch = pytest.importorskip("torch")

from reproduction.studies import counting, counting_models  # noqa: E402


@pytest.fixture
def batch(rng):
    return counting.draw(rng, 6, "cpu")


def test_every_item_comes_three_times_with_one_class(batch):
    times = torch.nn.functional.one_hot(batch.items).sum(1)
    assert (times == counting.TASK.repeats).all()
    classes = batch.values.argmax(-1)
    for item in range(counting.TASK.n_items):
        said = classes[batch.items == item].reshape(len(classes), -1)
        assert (said == batch.labels[:, item : item + 1]).all()


def test_tokens_of_an_item_are_nearer_than_tau_and_others_are_not(batch):
    near = (batch.keys @ batch.keys.mT) > 1 - counting_models.TAU
    same = batch.items[:, None] == batch.items[..., None]
    assert near[same].all()
    assert (near & ~same).float().mean() < 0.01


def test_a_query_is_the_item_whose_class_is_its_answer(batch):
    nearest = (batch.queries @ batch.keys.mT).argmax(-1)
    assert (batch.items.gather(1, nearest) == torch.arange(counting.TASK.n_items)).all()
    assert (batch.answers == batch.labels).all()


def test_marks_differ_in_frequency_from_stream_to_stream(rng):
    marked = counting.draw(rng, 200, "cpu").marked
    assert marked.min() < 0.1
    assert marked.max() > 0.9


def test_level_classes_leave_a_guess_at_chance(rng):
    batch = counting.draw(rng, 50, "cpu")
    level = batch.levelled(rng)
    assert counting.guessed(level) == pytest.approx(1 / counting.CLASSES)
    assert counting.guessed(batch) > 1.5 / counting.CLASSES
    assert level.keys is batch.keys


def test_asked_once_has_the_first_of_the_questions(batch):
    once = batch.asked_once()
    assert once.queries.shape == (6, 1, counting.WIDTH)
    assert (once.answers == batch.answers[:, :1]).all()


class Oracle(counting.Model):
    """Right in all classes; right in the count, or at its mean."""

    def __init__(self, counts):
        super().__init__()
        self.counts = counts

    def forward(self, batch):
        marked = batch.marked if self.counts else batch.marked.mean().expand(len(batch.keys))
        return torch.nn.functional.one_hot(batch.answers).float(), marked

    def held(self, batch):
        return 2.0, 8.0


@pytest.mark.parametrize(("counts", "r2"), [(True, 1.0), (False, 0.0)])
def test_a_score_of_one_is_perfect_and_the_mean_explains_nothing(batch, counts, r2):
    assert counting.score(Oracle(counts), batch) == pytest.approx((1.0, r2, 2.0, 8.0), abs=1e-6)


def test_training_lowers_the_loss_and_ticks_at_every_step(batch, seed):
    torch.manual_seed(seed)
    model, ticks = counting_models.made()["attention"], []
    before = counting.loss(model, batch).item()
    counting.train({"attention": model}, seed, 60, "cpu", lambda: ticks.append(1))
    assert counting.loss(model, batch).item() < 0.8 * before
    assert len(ticks) == 60


def test_models_of_a_seed_train_as_they_would_alone(seed):
    def trained(*names):
        torch.manual_seed(seed)
        models = {name: model for name, model in counting_models.made().items() if name in names}
        counting.train(models, seed, 3, "cpu", lambda: None)
        return counting.score(models["ssm"], counting.draw(np.random.default_rng(seed), 20, "cpu"))

    assert trained("ssm") == trained("ssm", "once", "level", "delta")
