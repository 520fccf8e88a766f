"""The learnable form: novelty among tokens, the soft mask, the budget, the hard cut."""

from math import inf, nan

import pytest
import torch

from distinctkv.nn import soft
from distinctkv.nn.functional import (
    allocate,
    budget_penalty,
    causal_novelty,
    hard_keep,
    read,
    soft_read,
)
from tests.nn import reference


def test_novelty_is_one_less_the_largest_cosine_before(batch, monkeypatch):
    monkeypatch.setattr(soft, "ROWS_ON_CPU", 7)
    keys = batch().k
    torch.testing.assert_close(causal_novelty(keys), reference.novelty(keys), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float32])
def test_the_nearest_is_the_nearest_whatever_lengths_rounding_gave(batch, kind):
    """In 16 bits keys are one long to .4 %, and the longest would win by its product."""
    keys = batch(L=60, D=16, things=3, noise=1e-3).k.to(kind)
    found = causal_novelty(keys)
    gaps = (keys[:, :, None] - keys[:, None]).double().square().sum(-1) / 2  # (B, L, L, H)
    later = torch.ones(60, 60, dtype=torch.bool).triu()
    wanted = gaps.masked_fill(later[..., None], 2.0).amin(2)
    least = max(1e-12, torch.finfo(kind).tiny * torch.finfo(kind).eps)  # that the type can say
    torch.testing.assert_close(found.double(), wanted, rtol=2**-7, atol=least)
    assert (causal_novelty(torch.cat([keys, keys], 1))[:, 60:] == 0).all()


def test_a_repeat_is_found_among_keys_that_float32_products_cannot_tell_apart():
    keys = torch.nn.functional.normalize(torch.tensor([0.6, 0.8, 1e-3, 2e-4]), dim=0).repeat(9, 1)
    keys[:7, 3] += 1e-5 * torch.arange(1, 8)
    found = causal_novelty(keys.reshape(1, 9, 1, 4)).flatten()
    assert found[8] == 0  # the eighth once more
    assert found[7] == pytest.approx(1e-10 / 2, rel=0.01)  # as far as the nearest of the seven


def test_no_tokens_have_no_novelty():
    assert causal_novelty(torch.empty(2, 0, 3, 4)).shape == (2, 0, 3)


def test_novelty_can_be_mapped_over_batches(batch):
    keys = batch().k
    keys = torch.stack([keys, keys.flip(1)])
    mapped = torch.func.vmap(causal_novelty)(keys)
    assert torch.equal(mapped[1], causal_novelty(keys[1]))


def test_novelty_ignores_padding(batch):
    data = batch()
    data.k[~data.mask] *= 3  # and does not look at its length
    got = causal_novelty(data.k, mask=data.mask)
    for b in range(2):
        alone = causal_novelty(data.k[b : b + 1, data.mask[b]])
        torch.testing.assert_close(got[b : b + 1, data.mask[b]], alone)
    assert (got[~data.mask] == 0).all()


def test_what_padding_holds_does_not_matter_nor_do_its_gradients(batch):
    data = batch(L=12)
    mask = torch.ones(2, 12, dtype=torch.bool)
    mask[0, 0] = mask[0, 5] = mask[1, 11] = False
    said = []
    for fill in (0.0, torch.nan):
        given = [x.clone() for x in (data.q, data.k, data.v, data.log_gate)]
        for x in given:
            x[~mask] = fill
            x.requires_grad_()
        out = soft_read(*given, mask=mask)
        new = causal_novelty(given[1], mask=mask)
        slopes = torch.autograd.grad(out.square().sum() + new.square().sum(), given)
        said.append([out, new, *slopes])
    for a, b in zip(*said, strict=True):
        assert torch.equal(a, b)
    assert (said[0][0][~mask] == 0).all()


def test_novelty_passes_gradcheck(batch):
    assert torch.autograd.gradcheck(causal_novelty, [batch(B=1, L=7, H=1).k.requires_grad_()])


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("masked", [True, False])
def test_the_soft_mask_and_its_gradients_are_the_loop(batch, causal, masked):
    data = batch(L=11)
    data.log_gate[:, [0, 1, 6]] = -inf
    inputs = [x.requires_grad_() for x in (data.q, data.k, data.v, data.log_gate)]
    mask = data.mask if masked else None
    fast = soft_read(*inputs, scale=2.0, mask=mask, causal=causal)
    slow = reference.soft_read(*inputs, 2.0, mask, causal)
    torch.testing.assert_close(fast, slow, rtol=0, atol=1e-12)
    ways = [torch.autograd.grad(out.square().sum(), inputs) for out in (fast, slow)]
    for a, b in zip(*ways, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_a_gate_of_zero_leaves_a_token_out(batch):
    data = batch()
    found = allocate(data.k, 0.1)
    shut = torch.where(found.lead, 0.0, -inf).double()
    hard = soft_read(data.q, data.k, data.v, shut)
    want = read(data.q, data.k, data.v, found, mode="distinct", value="first")
    torch.testing.assert_close(hard, want, rtol=0, atol=1e-12)


def test_the_budget_penalty_is_the_mean_of_squares():
    """One stream keeps 3 over a budget of 4, one 1 too few, one as many as it may."""
    gate = torch.tensor([1.0, 3 / 7, 4 / 7])[:, None, None].expand(3, 7, 2)
    assert budget_penalty(gate, 4).item() == pytest.approx((9 / 16 + 1 / 16 + 0) / 3)


@pytest.mark.parametrize(
    ("scores", "budget", "mask", "kept"),
    [
        ([1.0, 3.0, 3.0, 3.0, 2.0], 2, None, [1, 2]),  # of equals the earlier
        ([1.0, 3.0, 3.0, 3.0, 2.0], 2, [1, 0, 1, 1, 1], [2, 3]),
        ([1.0, 3.0, 3.0, 3.0, 2.0], 9, [1, 0, 1, 1, 1], [0, 2, 3, 4]),
        ([nan, 0.9, 0.5], 1, None, [1]),
        ([nan, 0.9, 0.5], 3, None, [1, 2]),
        ([nan, -inf, -inf], 1, None, [1]),
        ([nan, -inf, -inf], 2, None, [1, 2]),
        ([5.0, -inf, -inf], 1, [0, 1, 1], [1]),
        ([5.0, -inf, -inf], 2, [0, 1, 1], [1, 2]),
    ],
)
def test_the_hard_cut_keeps_the_highest_scores_that_are_numbers(scores, budget, mask, kept):
    mask = None if mask is None else torch.tensor([mask]).bool()
    found = hard_keep(torch.tensor(scores).reshape(1, -1, 1), budget, mask=mask)
    assert found.flatten().nonzero().flatten().tolist() == kept
