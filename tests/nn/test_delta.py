"""The chunked delta rule equals the plain one, and does what the delta rule is for."""

import pytest
import torch
from torch.nn import functional as fn

from distinctkv.nn.delta import delta_rule, delta_scan

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
