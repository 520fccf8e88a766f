"""The chunked recurrences equal the plain ones: outputs, states, gradients, any length."""

from functools import partial

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from torch.nn import functional as fn

from distinctkv.nn import ssm
from distinctkv.nn.delta_net import GatedDeltaNet, delta_rule, delta_scan
from distinctkv.nn.ssm import DiagonalSSM, Mamba2, diagonal, selective_scan, ssd

B, H, G, P, N = 2, 4, 2, 3, 5


@pytest.fixture
def normal():
    """Random numbers in float64."""
    return partial(torch.randn, dtype=torch.float64)


@pytest.fixture
def draw(normal):
    """Inputs of `ssd` and a state, for a length, each a leaf that wants a gradient."""

    def inputs(L):
        x, dt, A = normal(B, L, H, P), normal(B, L, H).exp(), -normal(H).exp()
        given = (x, dt, A, normal(B, L, G, N), normal(B, L, G, N), normal(B, H, P, N))
        return [tensor.requires_grad_() for tensor in given]

    return inputs


def check(found, wanted, ask, tolerance=1e-9):
    """Two pairs of outputs and last state are the same, with all their gradients."""
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)
    weights = [part.detach().sin() for part in wanted]
    mine = torch.autograd.grad(found, ask, weights)
    for one, other in zip(mine, torch.autograd.grad(wanted, ask, weights), strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


def plain(x, dt, A, B, C, state):
    """`ssd` by `selective_scan`: a head is P channels which share dt and A, a group shares B, C."""
    heads = []
    for h in range(H):
        g = h // (H // G)
        wide = dt[:, :, h, None].expand(-1, -1, P)
        decay = A[h].expand(P, N)
        heads.append(
            selective_scan(x[:, :, h], wide, decay, B[:, :, g], C[:, :, g], state=state[:, h])
        )
    return torch.stack([y for y, _ in heads], 2), torch.stack([last for _, last in heads], 1)


@pytest.mark.parametrize(
    ("L", "chunk", "span"),
    [(1, 8, 64), (7, 8, 64), (16, 8, 64), (33, 8, 64), (21, 1, 4), (19, 3, 2)],
)
def test_ssd_is_the_recurrence_with_all_its_gradients(draw, monkeypatch, L, chunk, span):
    monkeypatch.setattr(ssm, "SPAN", span)
    *given, state = ask = draw(L)
    check(ssd(*given, chunk=chunk, state=state), plain(*given, state), ask)


def test_the_tables_of_ssd_grow_with_the_length_and_no_faster(draw, monkeypatch):
    made, decays = [], ssm.decays
    monkeypatch.setattr(ssm, "decays", lambda moves: made.append(table := decays(moves)) or table)
    monkeypatch.setattr(ssm, "SPAN", 4)
    counts = []
    for L in (16, 64):
        ssd(*draw(L)[:-1], chunk=2)
        counts.append(sum(table.numel() for table in made))
        made.clear()
    assert counts[1] == 4 * counts[0]


@pytest.mark.slow
def test_long_streams_of_as_many_parts_share_a_graph(draw, monkeypatch):
    monkeypatch.setattr(ssm, "SPAN", 4)
    torch._dynamo.reset()
    graphs = CompileCounter()
    fast = torch.compile(
        lambda *given: ssd(*given, chunk=2), fullgraph=True, dynamic=True, backend=graphs
    )
    for L in (11, 13):
        *given, _ = draw(L)
        torch.testing.assert_close(fast(*given), ssd(*given, chunk=2))
    assert graphs.frame_count == 1


def test_ssd_survives_decays_that_underflow(draw):
    x, dt, A, B_, C, _ = (tensor.detach().float() for tensor in draw(40))
    A = (A - 50).requires_grad_()
    y, _ = ssd(x, dt * 30, A, B_, C, chunk=16)
    (slope,) = torch.autograd.grad(y.sum(), A)
    assert y.isfinite().all()
    assert slope.isfinite().all()


def test_ssd_keeps_its_accuracy_over_a_long_stream_with_resets(seed):
    """Between resets a token fades by e^-.0016: sums over the whole stream would lose that."""
    generator = torch.Generator().manual_seed(seed)
    L = 4000
    x, B_, C = (torch.randn(1, L, 1, n, generator=generator) for n in (4, 8, 8))
    dt, A = torch.full((1, L, 1), 1e-4), torch.tensor([-16.0])
    dt[:, ::200] = 50.0
    exact, _ = ssd(*(t.double() for t in (x, dt, A, B_, C)))
    y, _ = ssd(x, dt, A, B_, C)
    assert (y - exact).abs().max() < 2e-6 * exact.abs().max()


def test_no_tokens_leave_the_state_as_it_was(seed):
    made = torch.Generator().manual_seed(seed)
    state = torch.randn(2, 4, 3, 5, generator=made)
    none, pair = torch.empty(2, 0, 4, 3), torch.empty(2, 0, 1, 5)
    y, left = ssd(none, none[..., 0], -torch.ones(4), pair, pair, state=state)
    assert y.shape == none.shape
    assert torch.equal(left, state)
    assert ssd(none, none[..., 0], -torch.ones(4), pair, pair)[1].shape == state.shape
    modes = torch.randn(4, 5, dtype=torch.complex64, generator=made)
    y, left = diagonal(none[..., 0], modes, modes, modes, state=torch.stack([modes, modes]))
    assert y.shape == (2, 0, 4)
    assert torch.equal(left[1], modes)
    y, left = selective_scan(none[..., 0], none[..., 0], -torch.ones(4, 5), *[pair[:, :, 0]] * 2)
    assert y.shape == (2, 0, 4)
    assert not left.any()


@pytest.mark.parametrize("L", [1, 8, 19])
def test_diagonal_is_its_recurrence_with_all_its_gradients(normal, L):
    A, B_, C, state = (
        torch.complex(normal(*shape), normal(*shape)) for shape in [(3, 4)] * 3 + [(B, 3, 4)]
    )
    ask = [t.requires_grad_() for t in (normal(B, L, 3), A.div_(A.abs() * 1.1), B_, C, state)]
    h, rows = state, []
    for t in range(L):
        h = A * h + B_ * ask[0][:, t, :, None]
        rows.append(2 * (C * h).sum(-1).real)
    found = diagonal(*ask[:4], chunk=8, state=state)
    check(found, (torch.stack(rows, 1), h), ask, 1e-8)


def test_a_mode_that_has_decayed_away_is_gone_and_no_nan():
    x, one = torch.ones(1, 5, 1), torch.ones(1, 1) + 0j
    A = torch.zeros(1, 1, dtype=torch.complex64, requires_grad=True)
    y, state = diagonal(x, A, one, one / 2, chunk=2, state=torch.full((1, 1, 1), 7.0 + 0j))
    assert y.flatten().tolist() == [1] * 5
    assert state.item() == 1
    (slope,) = torch.autograd.grad(y.sum(), A)
    assert slope.real.item() == 7 + 4  # of the state, and of each token to the next


def test_a_layer_whose_steps_are_long_has_finite_gradients():
    layer = DiagonalSSM(4, states=3)
    with torch.no_grad():
        layer.log_step.fill_(5.0)
        layer.log_decay.fill_(0.0)
    y = layer(torch.randn(2, 9, 4))
    y.square().sum().backward()
    assert y.isfinite().all()
    assert all(weight.grad.isfinite().all() for weight in layer.parameters())


@torch.no_grad()
def test_lengths_say_after_which_token_a_state_is_wanted(seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(4, 19, 3, generator=generator, dtype=torch.float64)
    A, B_, C = torch.randn(3, 3, 4, generator=generator, dtype=torch.complex128) / 2
    start = torch.randn(4, 3, 4, generator=generator, dtype=torch.complex128)
    lengths = torch.tensor([0, 8, 11, 19])
    y, last = diagonal(x, A, B_, C, chunk=8, state=start, lengths=lengths)
    torch.testing.assert_close(last[0], start[0])
    for b, n in enumerate(lengths.tolist()[1:], 1):
        alone, state = diagonal(x[b : b + 1, :n], A, B_, C, chunk=8, state=start[b : b + 1])
        torch.testing.assert_close(last[b], state[0])
        torch.testing.assert_close(y[b, :n], alone[0])


@torch.no_grad()
def test_mamba2_is_its_recurrence_then_a_norm_of_what_is_gated():
    layer = Mamba2(8, states=5, head=4, chunk=8).double()
    for weight in (layer.norm, layer.skip):
        weight.uniform_(0.5, 2)
    x = 3 * torch.randn(2, 19, 8, dtype=torch.float64)
    z, mixed, dt = torch.split(x @ layer.in_proj.weight.T, [16, 16 + 10, 4], -1)
    before = torch.cat([torch.zeros(2, 3, 26).double(), mixed], 1)
    taps = sum(before[:, t : t + 19] * w for t, w in enumerate(layer.conv.weight))
    inner, B_, C = torch.split(fn.silu(taps + layer.conv.bias), [16, 5, 5], -1)
    dt = fn.softplus(dt + layer.dt_bias).repeat_interleave(4, -1)  # a head is 4 channels
    A = -layer.log_decay.exp().repeat_interleave(4)[:, None].expand(16, 5)
    y = selective_scan(inner, dt, A, B_, C)[0] + layer.skip.repeat_interleave(4) * inner
    gated = y * fn.silu(z)
    normed = gated / (gated.square().mean(-1, keepdim=True) + 1e-6).sqrt() * layer.norm
    torch.testing.assert_close(layer(x), normed @ layer.out_proj.weight.T, rtol=0, atol=1e-10)


@pytest.mark.parametrize("L", [1, 8, 29])
def test_the_chunked_delta_rule_is_the_plain_one_with_all_its_gradients(normal, L):
    q, k = (fn.normalize(normal(B, L, H, N), dim=-1) for _ in range(2))
    decay, rate = -normal(B, L, H).exp(), normal(B, L, H).sigmoid()
    ask = [t.requires_grad_() for t in (q, k, normal(B, L, H, P), decay, rate, normal(B, H, P, N))]
    *given, state = ask
    check(delta_rule(*given, chunk=8, state=state), delta_scan(*given, state=state), ask)


def published(layer, x):
    """S_t = a_t S_{t-1} (I - b_t k_t k_t^T) + b_t v_t k_t^T, with the projections around it."""
    H, K, V = layer.heads, layer.key, layer.value
    rows = x @ layer.in_proj.weight.T
    mixed, z, step, rate = torch.split(rows, [H * (2 * K + V), H * V, H, H], -1)
    before = torch.cat([torch.zeros_like(mixed[:, : layer.conv.taps - 1]), mixed], 1)
    mixed = fn.silu(
        layer.conv.bias
        + sum(before[:, t : t + x.shape[1]] * w for t, w in enumerate(layer.conv.weight))
    )
    out = torch.zeros(*x.shape[:2], H, V, dtype=x.dtype)
    for b in range(len(x)):
        for h in range(H):
            S = torch.zeros(V, K, dtype=x.dtype)
            for t in range(x.shape[1]):
                q, k, v = torch.split(mixed[b, t].reshape(H, -1)[h], [K, K, V])
                q, k = q / q.norm(), k / k.norm()
                slow = layer.log_decay[h].exp() * fn.softplus(step[b, t, h] + layer.dt_bias[h])
                a, beta = (-slow).exp(), 1 / (1 + (-rate[b, t, h]).exp())
                S = a * S @ (torch.eye(K).to(S) - beta * k[:, None] * k) + beta * v[:, None] * k
                out[b, t, h] = S @ q
    normed = out / (out.square().mean(-1, keepdim=True) + 1e-6).sqrt() * layer.norm
    return (normed.flatten(-2) * fn.silu(z)) @ layer.out_proj.weight.T


@torch.no_grad()
def test_the_delta_layer_is_the_published_recurrence():
    layer = GatedDeltaNet(12, heads=2, key=4, value=6, chunk=8).double()
    layer.norm.uniform_(0.5, 2)
    x = 3 * torch.randn(2, 21, 12, dtype=torch.float64)
    torch.testing.assert_close(layer(x), published(layer, x), rtol=0, atol=1e-10)
