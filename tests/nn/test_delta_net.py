"""The chunked delta rule equals the plain one, and does what the delta rule is for."""

import pytest
import torch
from torch.nn import functional as fn

from distinctkv.nn.delta_net import GatedDeltaNet, delta_rule, delta_scan

B, H, D, C = 2, 3, 4, 5


@pytest.fixture
def draw(seed):
    """Inputs of `delta_rule` in float64, for a length, each a leaf that wants a gradient."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    def inputs(L):
        q, k = (fn.normalize(normal(B, L, H, D), dim=-1) for _ in range(2))
        decay, rate = -normal(B, L, H).exp(), normal(B, L, H).sigmoid()
        given = (q, k, normal(B, L, H, C), decay, rate, normal(B, H, C, D))
        return [tensor.requires_grad_() for tensor in given]

    return inputs


@pytest.mark.parametrize("L", [1, 8, 29])
def test_the_chunked_rule_is_the_plain_one_with_all_its_gradients(draw, L):
    ask = draw(L)
    *given, state = ask
    found, wanted = delta_rule(*given, chunk=8, state=state), delta_scan(*given, state=state)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)
    weights = [part.detach().sin() for part in wanted]
    mine = torch.autograd.grad(found, ask, weights)
    for one, other in zip(mine, torch.autograd.grad(wanted, ask, weights), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_it_goes_on_from_its_state(draw):
    *given, _ = draw(21)
    whole, last = delta_rule(*given, chunk=8)
    state, parts = None, []
    for cut in (slice(0, 5), slice(5, 6), slice(6, 21)):
        y, state = delta_rule(*(tensor[:, cut] for tensor in given), chunk=8, state=state)
        parts.append(y)
    torch.testing.assert_close(torch.cat(parts, 1), whole)
    torch.testing.assert_close(state, last)


def test_chunks_of_nothing_are_refused(draw):
    *given, _ = draw(4)
    with pytest.raises(ValueError, match="chunk must be at least 1 token, got 0"):
        delta_rule(*given, chunk=0)


def test_a_key_bound_again_has_the_new_value():
    k = torch.eye(2)[[0, 1, 0]].reshape(1, 3, 1, 2)
    v = torch.tensor([1.0, 5.0, 2.0]).reshape(1, 3, 1, 1)
    none, all_ = torch.zeros(1, 3, 1), torch.ones(1, 3, 1)
    _, state = delta_rule(k, k, v, none, all_)
    assert state.flatten().tolist() == [2.0, 5.0]


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
def test_the_layer_is_the_published_recurrence(seed):
    torch.manual_seed(seed)
    layer = GatedDeltaNet(12, heads=2, key=4, value=6, chunk=8).double()
    layer.norm.uniform_(0.5, 2)
    x = 3 * torch.randn(2, 21, 12, dtype=torch.float64)
    torch.testing.assert_close(layer(x), published(layer, x), rtol=0, atol=1e-10)
