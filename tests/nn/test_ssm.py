"""The chunked recurrences equal the plain ones: outputs, states, gradients, any length."""

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from torch.nn import functional as fn

from distinctkv.nn import ssm
from distinctkv.nn.ssm import DiagonalSSM, Mamba2, diagonal, selective_scan, ssd

B, H, G, P, N = 2, 4, 2, 3, 5


@pytest.fixture
def draw(seed):
    """Inputs of `ssd` in float64, for a length, each a leaf that wants a gradient."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    def inputs(L):
        x, dt, A = normal(B, L, H, P), normal(B, L, H).exp(), -normal(H).exp()
        given = (x, dt, A, normal(B, L, G, N), normal(B, L, G, N), normal(B, H, P, N))
        return [tensor.requires_grad_() for tensor in given]

    return inputs


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


@pytest.mark.parametrize("L", [1, 7, 16, 33])
def test_ssd_is_the_recurrence_with_all_its_gradients(draw, L):
    *given, state = draw(L)
    found, wanted = ssd(*given, chunk=8, state=state), plain(*given, state)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)
    weights = [part.detach().sin() for part in wanted]
    ask = [*given, state]
    mine = torch.autograd.grad(found, ask, weights)
    for one, other in zip(mine, torch.autograd.grad(wanted, ask, weights), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_ssd_does_not_depend_on_the_chunk(draw):
    *given, _ = draw(40)
    whole, _ = ssd(*given, chunk=64)
    for chunk in (1, 3, 40):
        torch.testing.assert_close(ssd(*given, chunk=chunk)[0], whole)


def test_ssd_does_not_depend_on_where_a_long_stream_is_parted(draw, monkeypatch):
    *given, state = draw(40)
    whole = ssd(*given, chunk=3, state=state)
    monkeypatch.setattr(ssm, "SPAN", 4)
    for one, other in zip(ssd(*given, chunk=3, state=state), whole, strict=True):
        torch.testing.assert_close(one, other)


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


def test_ssd_goes_on_from_its_state(draw):
    x, dt, A, B_, C, _ = draw(21)
    whole, last = ssd(x, dt, A, B_, C, chunk=8)
    state, parts = None, []
    for cut in (slice(0, 5), slice(5, 6), slice(6, 21)):
        y, state = ssd(x[:, cut], dt[:, cut], A, B_[:, cut], C[:, cut], chunk=8, state=state)
        parts.append(y)
    torch.testing.assert_close(torch.cat(parts, 1), whole)
    torch.testing.assert_close(state, last)


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


def test_ssd_passes_gradcheck(draw):
    x, dt, A, B_, C, state = draw(5)
    assert torch.autograd.gradcheck(
        lambda *given: ssd(*given[:5], chunk=2, state=given[5]), (x, dt, A, B_, C, state)
    )


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


def test_ssd_refuses_shapes_that_do_not_fit(draw):
    x, dt, A, B_, C, _ = draw(4)
    with pytest.raises(ValueError, match="x has 4 heads: dt must be"):
        ssd(x, dt[:, :3], A, B_, C)
    with pytest.raises(ValueError, match="G a divisor of 4"):
        ssd(x, dt, A, B_[:, :, [0, 1, 1]], C[:, :, [0, 1, 1]])
    with pytest.raises(ValueError, match="chunk must be at least 1"):
        ssd(x, dt, A, B_, C, chunk=0)


def test_ssd_refuses_a_state_of_another_shape(draw):
    *given, state = draw(4)
    with pytest.raises(ValueError, match=r"state must be .* got"):
        ssd(*given, state=state.mT)


def test_diagonal_and_the_scan_refuse_shapes_that_do_not_fit():
    x, A, B_ = torch.ones(2, 3, 4), torch.ones(4, 5), torch.ones(2, 3, 5)
    for wrong in (A[:1], A[0], A[:, :2]):
        with pytest.raises(ValueError, match=r"A, B, C must all be \(E, N\), got"):
            diagonal(x, A + 0j, wrong + 0j, A + 0j)
    with pytest.raises(ValueError, match=r"state must be \(2, 4, 5\)"):
        diagonal(x, A + 0j, A + 0j, A + 0j, state=torch.zeros(1, 4, 5) + 0j)
    for dt, b in ((x[..., :1], B_), (x, B_[:1]), (x, B_[..., :1])):
        with pytest.raises(ValueError, match=r"B and C \(B, L, N\), got"):
            selective_scan(x, dt, A, b, B_)


@pytest.mark.parametrize("L", [1, 8, 19])
def test_diagonal_is_its_recurrence_with_all_its_gradients(seed, L):
    generator = torch.Generator().manual_seed(seed)
    x, *parts = (
        torch.randn(*shape, generator=generator, dtype=kind)
        for shape, kind in [((B, L, 3), torch.float64), *[((3, 4), torch.complex128)] * 3]
    )
    state = torch.randn(B, 3, 4, generator=generator, dtype=torch.complex128)
    A, B_, C = parts
    ask = [t.requires_grad_() for t in (x, A.div_(A.abs() * 1.1), B_, C, state)]
    found = diagonal(x, A, B_, C, chunk=8, state=state)
    h, rows = state, []
    for t in range(L):
        h = A * h + B_ * x[:, t, :, None]
        rows.append(2 * (C * h).sum(-1).real)
    wanted = torch.stack(rows, 1), h
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)
    mine = torch.autograd.grad(found[0].square().sum() + found[1].abs().sum(), ask)
    right = torch.autograd.grad(wanted[0].square().sum() + wanted[1].abs().sum(), ask)
    for one, other in zip(mine, right, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8)


def test_a_mode_that_has_decayed_away_is_gone_and_no_nan():
    x, one = torch.ones(1, 5, 1), torch.ones(1, 1) + 0j
    A = torch.zeros(1, 1, dtype=torch.complex64, requires_grad=True)
    y, state = diagonal(x, A, one, one / 2, chunk=2, state=torch.full((1, 1, 1), 7.0 + 0j))
    assert y.flatten().tolist() == [1] * 5
    assert state.item() == 1
    (slope,) = torch.autograd.grad(y.sum(), A)
    assert slope.real.item() == 7 + 4  # of the state, and of each token to the next


def test_a_layer_whose_steps_are_long_has_finite_gradients(seed):
    torch.manual_seed(seed)
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
def test_mamba2_is_its_recurrence_then_a_norm_of_what_is_gated(seed):
    torch.manual_seed(seed)
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
