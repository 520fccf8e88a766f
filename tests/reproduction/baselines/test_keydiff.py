import numpy as np

from reproduction.baselines import KeyDiff


def plain(keys, budget):
    """Places kept, one token at a time; the newest cannot leave."""
    kept = []
    for t in range(len(keys)):
        kept.append(t)
        if len(kept) > budget:
            del kept[int((keys[kept[:-1]] @ keys[kept].mean(axis=0)).argmax())]
    return kept


def test_it_keeps_what_the_plain_loop_keeps(rng):
    keys = rng.standard_normal((80, 8))
    keys /= np.linalg.norm(keys, axis=1, keepdims=True)
    spread = KeyDiff(budget=6)
    spread.write(keys, np.arange(80.0)[:, None])
    assert spread._values[:, 0].tolist() == plain(keys, 6)


def test_what_is_like_the_mean_leaves():
    spread = KeyDiff(budget=3)
    spread.write([[1.0, 0.5], [1.0, 0.0], [1.0, -0.5], [1.0, -0.6]], np.arange(4.0)[:, None])
    assert spread._values[:, 0].tolist() == [0.0, 2.0, 3.0]


def test_the_newest_token_stays_for_its_step():
    spread = KeyDiff(budget=1)
    assert spread.write([[1.0, 0.0]] * 3, np.ones((3, 1))).tolist() == [0, 1, 2]
