"""The estimator is one of scikit-learn's, and the rule."""

import sys
from importlib import import_module

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from distinctkv import Cache, Concentration
from distinctkv.clustering import OnlineDPMeans
from tests.strategies import cuts, streams

CHECKED = [
    OnlineDPMeans(),
    OnlineDPMeans(key="mean"),
    OnlineDPMeans(key="ema", budget=5),
    OnlineDPMeans(metric="cosine", tau=0.2),
]


def excused(model):
    """A row of zeros has no direction, and one of these checks has one."""
    if model.metric == "cosine":
        return {"check_estimators_dtypes": "a row of zeros has no cosine to any other"}
    return {}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(CHECKED, expected_failed_checks=excused)
def test_it_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


models = st.builds(
    OnlineDPMeans,
    st.sampled_from([0.0, 0.3, 1.0, 5.0]),
    metric=st.sampled_from(["euclidean", "cosine"]),
    key=st.sampled_from(["first", "mean", "ema"]),
    budget=st.sampled_from([np.inf, 3]),
).filter(lambda model: model.metric == "euclidean" or model.tau <= 2)


@given(models, streams(), st.data())
def test_pieces_make_no_difference(model, stream, data):
    whole, pieces = clone(model).fit(stream.keys), clone(model)
    parts = np.split(stream.keys, data.draw(cuts(len(stream.keys))))
    for part in filter(len, parts):
        pieces.partial_fit(part)
    assert (whole.cluster_centers_ == pieces.cluster_centers_).all()
    assert (whole.counts_ == pieces.counts_).all()
    assert (whole.predict(stream.keys) == pieces.predict(stream.keys)).all()
    assert (whole.labels_[-len(part) :] == pieces.labels_).all()


@given(streams(), st.sampled_from([0.0, 0.3, 1.0, 5.0]))
def test_it_is_the_rule_on_squared_distances(stream, tau):
    cache = Cache(Concentration.fixed(tau**2), metric="euclidean")
    ids = cache.write(stream.keys)
    assert (OnlineDPMeans(tau).fit(stream.keys).labels_ == ids).all()


@given(streams(), models)
def test_a_prediction_is_the_nearest_centre(stream, model):
    model.fit(stream.keys)
    far = model.transform(stream.keys)
    found = model.predict(stream.keys)
    chosen = far[np.arange(len(far)), found]
    assert (chosen <= far.min(axis=1) + 1e-3 * (1 + np.abs(stream.keys).max())).all()
    assert far.shape == (len(stream.keys), model.n_clusters_)


def test_labels_of_evicted_clusters_are_minus_one():
    model = OnlineDPMeans(0.5, budget=2).fit([[0.0], [5.0], [9.0], [9.1]])
    assert model.labels_.tolist() == [-1, 0, 1, 1]
    assert model.cluster_centers_.tolist() == [[5.0], [9.0]]


def test_distances_that_float32_would_lose_are_refused():
    times = np.array([[1.7e9], [1.7e9 + 30], [1.7e9 + 60]])
    with pytest.raises(ValueError, match=r"steps of 128 at 1\.7e\+09.* tau .* 10\b.*take the mean"):
        OnlineDPMeans(tau=10.0).fit(times)
    model = OnlineDPMeans(tau=10.0).fit(times - times.mean())
    assert model.labels_.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="steps of 128"):
        model.partial_fit(times)
    assert model.counts_.sum() == 3  # nothing was learned
    assert OnlineDPMeans(tau=1e-3, metric="cosine").fit(np.c_[times, times]).n_clusters_ == 1
    assert OnlineDPMeans(tau=1e-9).fit(np.zeros((2, 1))).n_clusters_ == 1


def test_rows_that_vanish_in_float32_are_refused():
    rows = np.array([[0.0], [1e-46], [5e-46]])
    with pytest.raises(ValueError, match=r"steps of 1\.4013e-45 at 5e-46"):
        OnlineDPMeans(tau=1e-48).fit(rows)
    assert OnlineDPMeans(tau=1e-48).fit(rows * 0).n_clusters_ == 1
    assert OnlineDPMeans(tau=1e-40).fit(rows * 1e8).n_clusters_ == 3
    assert OnlineDPMeans(tau=1e-37).fit(rows * 1e8).n_clusters_ == 1
    assert OnlineDPMeans(tau=np.inf).fit([[0.0], [1e14]]).n_clusters_ == 1


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_a_row_that_cannot_be_compared_is_named(metric):
    model = OnlineDPMeans(0.5, metric=metric).fit(np.eye(2))
    bad = [[1.0, 0.0], [0.0, 0.0]] if metric == "cosine" else [[1.0, 0.0], [0.0, 1e16]]
    for take in (model.partial_fit, model.predict, model.fit):
        with pytest.raises(ValueError, match=r"row 1 (?!.*on_bad)"):
            take(bad)
    assert model.counts_.tolist() == [1, 1]


REFUSED = {
    "no direction": ("cosine", np.zeros((1, 3))),
    "float32 has steps": ("euclidean", np.full((1, 3), 1e9)),
    "metric must be": ("none", np.ones((1, 3))),
}


@pytest.mark.parametrize("complaint", REFUSED)
def test_a_refused_fit_leaves_the_model_as_it_was(complaint):
    metric, bad = REFUSED[complaint]
    model = OnlineDPMeans(0.5, metric=metric)
    with pytest.raises(ValueError, match=complaint):
        model.fit(bad)
    with pytest.raises(NotFittedError):
        model.predict(np.eye(2))
    model.set_params(metric="euclidean").fit(np.eye(2))
    with pytest.raises(ValueError, match=complaint):
        model.set_params(metric=metric).fit(bad)
    assert model.n_features_in_ == 2
    assert model.predict(np.eye(2)).tolist() == [0, 1]


@given(st.floats(1e-3, 1e3), st.floats(1.0, 1e12), st.integers(0, 2**32 - 1))
def test_what_is_not_refused_is_clustered_as_in_float64(tau, size, draw):
    rng = np.random.default_rng(draw)
    small = 0.3 * tau * rng.integers(0, 20, (20, 1))  # no two of them at about tau
    rows = rng.choice([-size, size]) + small
    if np.spacing(np.float32(np.abs(rows).max())) > tau / 32:
        with pytest.raises(ValueError, match="float32 has steps of"):
            OnlineDPMeans(tau).fit(rows)
    else:
        opened = [
            np.unique(OnlineDPMeans(tau).fit(given).labels_, return_index=True)[1].tolist()
            for given in (rows, small)
        ]
        assert opened[0] == opened[1]


@pytest.mark.parametrize(
    "given", [{"tau": 100.0}, {"budget": 7}, {"key": "mean"}, {"metric": "cosine"}]
)
def test_a_setting_cannot_change_under_way(given):
    model = OnlineDPMeans(tau=1.0).fit([[1.0, 2.0]])
    (name,) = given
    with pytest.raises(ValueError, match=f"{name} .* cannot change .* fit"):
        model.set_params(**given).partial_fit([[5.0, 5.0]])
    assert model.counts_.tolist() == [1]
    assert model.fit([[5.0, 5.0]]).counts_.tolist() == [1]  # but it can begin anew


@pytest.mark.parametrize("budget", [np.inf, 6])
def test_a_label_does_not_take_a_copy_of_the_slots(rng, budget, monkeypatch):
    rows = rng.standard_normal((40, 3))
    model = OnlineDPMeans(0.5, budget=budget).fit(rows)
    want = model.predict(rows), model.labels_
    monkeypatch.setattr(Cache, "slots", property(lambda _: pytest.fail("all slots copied")))
    again = OnlineDPMeans(0.5, budget=budget).fit(rows)
    assert (again.predict(rows) == want[0]).all()
    assert (again.labels_ == want[1]).all()


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_tables_are_rows_with_names(kind, rng):
    library = pytest.importorskip(kind)
    rows = rng.standard_normal((40, 2))
    table = library.DataFrame({"a": rows[:, 0], "b": rows[:, 1]})
    model = OnlineDPMeans().fit(table)
    assert model.feature_names_in_.tolist() == ["a", "b"]
    assert (model.labels_ == OnlineDPMeans().fit(rows).labels_).all()


def test_it_has_its_place_in_a_pipeline(rng):
    rows = np.concatenate([rng.normal(c, 0.1, (20, 3)) for c in (0, 10, 20)])
    pipe = make_pipeline(StandardScaler(), OnlineDPMeans(0.5))
    assert pipe.fit_predict(rows).tolist() == [0] * 20 + [1] * 20 + [2] * 20
    names = pipe.get_feature_names_out().tolist()
    assert names == ["onlinedpmeans0", "onlinedpmeans1", "onlinedpmeans2"]


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"tau": -1}, ValueError),
        ({"tau": "x"}, TypeError),
        ({"tau": np.nan}, ValueError),
        ({"tau": 1e200}, ValueError),
        ({"budget": 0}, ValueError),
        ({"key": "last"}, ValueError),
        ({"metric": "manhattan"}, ValueError),
    ],
)
def test_a_wrong_setting_is_refused_by_fit(given, error):
    with pytest.raises(error, match="must be"):
        OnlineDPMeans(**given).fit([[1.0]])


def test_without_scikit_learn_the_way_to_get_it_is_told(monkeypatch):
    monkeypatch.delitem(sys.modules, "distinctkv.clustering", raising=False)
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    with pytest.raises(ImportError, match=r"pip install 'distinctkv\[sklearn\]'"):
        import_module("distinctkv.clustering")
