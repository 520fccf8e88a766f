import numpy as np

from reproduction.baselines import TOVA


def plain(keys, budget):
    """Places kept, one token at a time."""
    kept = []
    for t, key in enumerate(keys):
        kept.append(t)
        if len(kept) > budget:
            del kept[int((keys[kept] @ key).argmin())]
    return kept


def test_it_keeps_what_the_plain_loop_keeps(rng):
    keys = rng.standard_normal((80, 8))
    keys /= np.linalg.norm(keys, axis=1, keepdims=True)
    last = TOVA(budget=6)
    last.write(keys, np.arange(80.0)[:, None])
    assert last._values[:, 0].tolist() == plain(keys, 6)


def test_what_is_unlike_the_newest_leaves():
    last = TOVA(budget=2)
    last.write([[1.0, 0.0], [-1.0, 0.0], [1.0, 0.1]], [[1.0], [2.0], [3.0]])
    assert last._values[:, 0].tolist() == [1.0, 3.0]


def test_of_equally_attended_tokens_the_oldest_leaves():
    last = TOVA(budget=2)
    last.write(np.eye(3), [[1.0], [2.0], [3.0]])
    assert last._values[:, 0].tolist() == [2.0, 3.0]
