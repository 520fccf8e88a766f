"""Fixed states that a query multiplies: sums of outer products, plain, fading or corrected."""

# L tokens, Q queries, D key size, C value size, P key size after a projection,
# F = (P + 1) (P + 2) / 2 features

from __future__ import annotations

import numpy as np

from distinctkv.rule import Floats, unit

from .base import (
    Baseline,
    Card,
    Float32s,
    Ids,
    LinearState,
    State,
    at_least_one,
    fraction,
    positive,
)


class Superposition(Baseline):
    """One matrix, the sum of all ``k v^T``, read by ``q`` (the paper's fixed-state floor).

    Linear attention without a feature map (Katharopoulos et al. 2020), or a diagonal state-space
    model that forgets nothing. The paper calls its floor "diagonal SSM, S4D-style" and does not
    give the update; this one reaches its number. It has nothing to set.

    No token has a slot of its own, so every id is -1. The paper counts the rows of the state, one
    per dimension of a key, as slots, and so does ``len``; ``nbytes`` is the fair measure.

    >>> state = Superposition()
    >>> state.write(np.eye(3), [[1.0], [2.0], [3.0]])
    array([-1, -1, -1])
    >>> state.read(np.eye(3)[1:2])
    array([[2.]])
    """

    card = Card(
        mechanism="one matrix sums all k v^T",
        keeps="no token, only the sum",
        growth="fixed",
        size="4 D C",
    )

    def __len__(self) -> int:
        return len(self._state) if self._widths else 0

    @property
    def nbytes(self) -> int:
        """Bytes of the state, the same however long the stream."""
        return self._state.nbytes if self._widths else 0

    def _init_state(self, width: int, n_values: int) -> None:
        self._state = np.zeros((width, n_values), np.float32)

    def _write(self, keys: Float32s, values: Float32s) -> Ids:
        self._state += keys.T @ values
        return np.full(len(keys), -1)

    def _read(self, queries: Float32s) -> Floats:
        return (queries @ self._state).astype(np.float64)


class DecayedSuperposition(LinearState):
    """The sum of all ``k v^T``, each worth ``decay`` times less with every token after it.

    ``S = decay S + k v^T``: the retention of RetNet (Sun et al. 2023), or a diagonal state-space
    model with one decay for all its channels. We deviate: one head, and a decay that no training
    chose. Mamba's depends on the token, too.

    Where nothing goes out of date forgetting only harms, and of the nine tried from .98 to 1, the
    plain sum does best on the recall stream. Where items are replaced, six and thirty at a time in
    turn, .993 and .995 do; the default is for such streams.

    >>> state = DecayedSuperposition(decay=0.5)
    >>> state.write([[1.0, 0.0], [0.0, 1.0]], [[4.0], [3.0]])
    array([-1, -1])
    >>> state.read([[1.0, 0.0], [0.0, 1.0]])
    array([[2.],
           [3.]])
    """

    card = Card(
        mechanism="one matrix sums all k v^T and fades with every token",
        keeps="no token, only the sum",
        growth="fixed",
        size="4 D C",
    )

    def __init__(self, decay: float = 0.995) -> None:
        super().__init__()
        self.decay = fraction("decay", decay)

    def _update(self, keys: Floats, values: Floats) -> None:
        worth = self.decay ** np.arange(len(keys))[::-1, None]
        left = self.decay ** len(keys)
        self._state = (left * self._state + (worth * keys).T @ values).astype(np.float32)


class Delta(LinearState):
    """A matrix that each token corrects, ``S = S + rate k (v - S^T k)^T``.

    Widrow and Hoff (1960); as a layer, DeltaNet (Schlag et al. 2021, Yang et al. 2024). At a rate
    of 1 a key forgets its old value for the new one. We deviate: one head, no short convolution,
    and one ``rate`` (their beta) for all tokens, which DeltaNet learns to set for each.

    On the recall stream, of eleven rates from .05 to 1, .1 and .13 do best. Where items are
    replaced, .2 does (of four).

    >>> state = Delta(rate=1.0)
    >>> state.write([[1.0, 0.0], [1.0, 0.0]], [[4.0], [3.0]])
    array([-1, -1])
    >>> state.read([[1.0, 0.0]])
    array([[3.]])
    """

    card = Card(
        mechanism="each token corrects one matrix by its error",
        keeps="no token, only the matrix",
        growth="fixed",
        size="4 D C",
    )

    def __init__(self, rate: float = 0.1) -> None:
        super().__init__()
        self.rate = fraction("rate", rate)
        self.decay = 1.0

    def _update(self, keys: Floats, values: Floats) -> None:
        age = np.arange(len(keys))
        since = self.decay ** np.maximum(age[:, None] - age, 0)  # (L, L), from token to token
        before = self.decay ** (age[:, None] + 1)  # (L, 1), from the block's start to each token
        # A token's error depends on the errors before it: one triangular system for the block.
        among = np.eye(len(keys)) + self.rate * np.tril(since * (keys @ keys.T), -1)
        errors = np.linalg.solve(among, values - before * (keys @ self._state))
        added = (self.rate * since[-1][:, None] * keys).T @ errors
        self._state = (before[-1] * self._state + added).astype(np.float32)


class GatedDelta(Delta):
    """The delta rule on a matrix that fades first, ``S = d S + rate k (v - d S^T k)^T``.

    Gated DeltaNet (Yang et al. 2025). We deviate as in ``Delta``; ``decay`` (d, their alpha) is the
    same for all tokens, too.

    On the recall stream, of six decays from .98 to .9995 the slowest do best, and none does better
    than no decay. Where items are replaced, at this rate, .999 and no decay do equally well: the
    delta rule already forgets what it overwrites.

    >>> state = GatedDelta(rate=1.0, decay=0.5)
    >>> state.write([[1.0, 0.0], [0.0, 1.0]], [[4.0], [3.0]])
    array([-1, -1])
    >>> state.read([[1.0, 0.0], [0.0, 1.0]])
    array([[2.],
           [3.]])
    """

    card = Card(
        mechanism="one matrix fades, and each token corrects it by its error",
        keeps="no token, only the matrix",
        growth="fixed",
        size="4 D C",
    )

    def __init__(self, rate: float = 0.1, decay: float = 0.999) -> None:
        super().__init__(rate)
        self.decay = fraction("decay", decay)


class Ridge(LinearState):
    """The map ``W`` with the least ``sum |W^T k - v|^2 + penalty |W|^2`` over the stream.

    Recursive least squares (Plackett 1950); as a layer, the mesa-optimiser of von Oswald et al.
    (2023). ``decay`` weighs a token less the older it is. We deviate in form only: where the
    recursion carries an inverse, we carry the two sums, ``k k^T`` and ``k v^T``, which take the
    same bytes, and solve at the read. The result is the same, the order of tokens plays no part,
    and no rounding piles up.

    On the recall stream penalties from .001 to 1 do equally well, and 3 and 10 worse (seven tried);
    without drift nothing is gained by a decay. Where items are replaced, .99 to .995 does best (of
    .98 to 1).

    >>> state = Ridge(penalty=1.0)
    >>> state.write([[1.0, 0.0]] * 3, [[4.0]] * 3)
    array([-1, -1, -1])
    >>> state.read([[1.0, 0.0]])                        # 3 * 4 / (3 + 1)
    array([[3.]])
    """

    card = Card(
        mechanism="the linear map from keys to values of least squared error",
        keeps="no token, only the sums of k k^T and k v^T",
        growth="fixed",
        size="4 D (D + C)",
    )

    def __init__(self, penalty: float = 0.1, decay: float = 1.0) -> None:
        super().__init__()
        self.penalty = positive("penalty", penalty)
        self.decay = fraction("decay", decay)

    def _init_state(self, width: int, n_values: int) -> None:
        super()._init_state(width, n_values)
        self._gram = np.zeros((width, width), np.float32)

    def _update(self, keys: Floats, values: Floats) -> None:
        weighed = (self.decay ** np.arange(len(keys))[::-1, None] * keys).T
        left = self.decay ** len(keys)
        self._gram = (left * self._gram + weighed @ keys).astype(np.float32)
        self._state = (left * self._state + weighed @ values).astype(np.float32)

    def _read(self, queries: Float32s) -> Floats:
        gram = self._gram.astype(np.float64) + self.penalty * np.eye(len(self._gram))
        answer: Floats = queries @ np.linalg.solve(gram, self._state.astype(np.float64))
        return answer


class Based(State):
    """Attention with ``1 + s + s^2 / 2`` in place of ``exp(s)``, ``s = q k / theta``.

    Such weights are products of features of the query and of the key, so the sums of ``f(k) v^T``
    and ``f(k)`` are all there is to keep (Katharopoulos et al. 2020; these features: Based, Arora
    et al. 2024). We deviate: Based learns to project keys to 16 numbers and adds a sliding window;
    here there is no window, and keys are whole, or projected at random to ``width`` numbers and
    brought back to length one.

    On the recall stream temperatures of .02 to .1 do equally well, .2 to 1 worse (six tried), and
    whole keys better than any projection; at ``width=16`` the state, with the projection, is about
    as large as a slot for each item.

    >>> state = Based(theta=0.1)
    >>> state.write([[1.0, 0.0], [0.0, 1.0]], [[1.0], [0.0]])
    array([-1, -1])
    >>> state.read([[1.0, 0.0]]).round(3)               # 61 / (61 + 1)
    array([[0.984]])
    """

    card = Card(
        mechanism="softmax attention with exp cut off after its square, as sums over features",
        keeps="no token, only the sums; P = D, or the width keys are projected to, and how",
        growth="fixed",
        size="2 (P + 1) (P + 2) (C + 1), and 4 D P if P < D",
    )

    def __init__(self, theta: float = 0.05, width: int | None = None, seed: int = 0) -> None:
        super().__init__()
        self.theta = positive("theta", theta)
        self.width = None if width is None else at_least_one("width", width)
        self.seed = seed

    def _init_state(self, width: int, n_values: int) -> None:
        projected = width if self.width is None else min(width, self.width)
        n_features = (projected + 1) * (projected + 2) // 2
        self._state = np.zeros((n_features, n_values + 1), np.float32)
        self._onto = projection(width, projected, self.seed) if projected < width else None

    def _update(self, keys: Floats, values: Floats) -> None:
        marked = np.column_stack([values, np.ones(len(values))])
        self._state += (features(self._project(keys)).T @ marked).astype(np.float32)

    def _read(self, queries: Float32s) -> Floats:
        projected = self._project(queries.astype(np.float64))
        read: Floats = (features(projected) * powers(projected.shape[1], self.theta)) @ self._state
        return read[:, :-1] / read[:, -1:]

    def _project(self, rows: Floats) -> Floats:
        return rows if self._onto is None else unit(rows @ self._onto)


def projection(width: int, projected: int, seed: int) -> Float32s:
    """A random subspace, (D, P), drawn once and held."""
    drawn = np.random.default_rng(seed).standard_normal((width, projected))
    return np.linalg.qr(drawn)[0].astype(np.float32)


def features(rows: Floats) -> Floats:
    """One, the numbers of a row, and their products, (L, P) to (L, F).

    >>> features(np.array([[2.0, 3.0]]))
    array([[1., 2., 3., 4., 6., 9.]])
    """
    i, j = np.triu_indices(rows.shape[1])
    return np.hstack([np.ones((len(rows), 1)), rows, rows[:, i] * rows[:, j]])


def powers(width: int, theta: float) -> Floats:
    """What each feature weighs in ``1 + s + s^2 / 2``; a mixed product stands for two.

    >>> powers(2, theta=0.5)
    array([1., 2., 2., 2., 4., 2.])
    """
    i, j = np.triu_indices(width)
    squares = np.where(i == j, 0.5, 1.0) / theta**2
    return np.concatenate([[1.0], np.full(width, 1 / theta), squares])


class Fourier(State):
    """The sum of all ``f(k) v^T``, with ``f`` random waves (Rahimi and Recht 2007).

    ``f(q) f(k)`` is near ``exp(-scale^2 |q - k|^2 / 2)``, nearer the more features there are. It is
    the paper's fixed state, in a space wide enough to tell the items apart. Peng et al. (2021) use
    such features for attention and divide by their sum; we do not, as the sum is the same for all
    classes.

    With their projections, 66 features hold as many bytes as 64 slots of a key of 32 and a class
    label, if values have 16 numbers. On the recall stream scales from 2.25 to 3.5 do equally well
    at 132, 1 fails, and 4 and 5 do worse (nine tried, three seeds); at 64 features 2.5 does best.

    >>> state = Fourier(n_features=132)
    >>> state.write(np.eye(3), [[1.0], [2.0], [3.0]])
    array([-1, -1, -1])
    >>> state.read(np.eye(3)).round(), len(state)
    (array([[1.],
           [2.],
           [3.]]), 132)
    """

    card = Card(
        mechanism="one matrix sums all f(k) v^T, f the sines and cosines of random projections",
        keeps="no token, only the sum and the projections",
        growth="fixed",
        size="4 features C + 2 features D",
    )

    def __init__(self, n_features: int = 66, scale: float = 2.5, seed: int = 0) -> None:
        super().__init__()
        if n_features < 2 or n_features % 2:
            raise ValueError(
                f"n_features must be even and at least 2, got {n_features}; "
                "each wave has a sine and a cosine"
            )
        self.n_features = n_features
        self.scale = positive("scale", scale)
        self.seed = seed

    def _init_state(self, width: int, n_values: int) -> None:
        self._state = np.zeros((self.n_features, n_values), np.float32)
        self._turns = projections(width, self.n_features, self.scale, self.seed)

    def _update(self, keys: Floats, values: Floats) -> None:
        self._state += (waves(keys, self._turns).T @ values).astype(np.float32)

    def _read(self, queries: Float32s) -> Floats:
        answer: Floats = waves(queries.astype(np.float64), self._turns) @ self._state
        return answer


def projections(width: int, n_features: int, scale: float, seed: int) -> Float32s:
    """Directions and speeds of the waves, (D, features / 2), drawn once and held."""
    drawn = np.random.default_rng(seed).standard_normal((width, n_features // 2))
    return (scale * drawn).astype(np.float32)


def waves(rows: Floats, turns: Float32s) -> Floats:
    """Features whose products approach a Gaussian of the distance; each row has length one.

    >>> features = waves(np.eye(2), projections(2, n_features=4000, scale=1.0, seed=0))
    >>> (features @ features.T).round(1)                 # exp(-1) = .37
    array([[1. , 0.4],
           [0.4, 1. ]])
    """
    phases = rows @ turns
    found: Floats = np.hstack([np.cos(phases), np.sin(phases)]) / np.sqrt(turns.shape[1])
    return found
