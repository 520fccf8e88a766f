"""Reads of a whole sequence against the token loop, forward and backward."""

from itertools import product

import pytest
import torch
from torch.nn import functional as fn

from distinctkv.nn import slot_attention
from distinctkv.nn.functional import allocate, read, slot_keys, unit
from tests.nn import reference

READS = list(product(("mass", "distinct"), ("mean", "first", "last")))


@pytest.mark.parametrize(("mode", "value"), READS)
def test_a_read_and_its_gradients_are_the_token_loop(batch, monkeypatch, mode, value):
    monkeypatch.setattr(slot_attention, "QUERIES", 7)
    data = batch(L=17)
    for found in (allocate(data.k, 0.1), allocate(data.k, 0.1, mask=data.mask)):
        inputs = [x.clone().requires_grad_() for x in (data.q, data.k, data.v)]
        answers = []
        for out in (
            read(*inputs, found, scale=2.0, mode=mode, value=value),
            reference.read(*inputs, found, mode, value, 2.0),
        ):
            weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
            answers.append([out.detach(), *torch.autograd.grad((out * weight).sum(), inputs)])
        for a, b in zip(*answers, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("mode", "value"), READS)
def test_queries_in_groups_read_as_queries_apart(batch, mode, value):
    data = batch(group=3)
    found = allocate(data.k, 0.1)
    grouped = read(data.q, data.k, data.v, found, mode=mode, value=value)
    for g in range(3):
        alone = read(data.q[:, :, g::3], data.k, data.v, found, mode=mode, value=value)
        torch.testing.assert_close(grouped[:, :, g::3], alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("tau", "mode", "value"), [*((-1.0, *way) for way in READS), (0.0, "mass", "mean")]
)
def test_where_all_is_novel_or_repeats_exactly_it_is_full_attention(batch, tau, mode, value):
    data = batch(noise=0.2 if tau < 0 else 0.0)
    found = allocate(data.k, tau)
    assert int(found.n_slots.max()) <= (23 if tau < 0 else 5)
    heads = (x.transpose(1, 2) for x in (data.q, data.k, data.v))
    full = fn.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2)
    out = read(data.q, data.k, data.v, found, mode=mode, value=value)
    torch.testing.assert_close(out, full, rtol=0, atol=1e-12)


def test_straight_through_the_number_is_the_slot_s_and_the_gradient_the_token_s(batch):
    data = batch(dtype=torch.float32)
    found = allocate(data.k, 0.3)
    k = data.k.clone().requires_grad_()
    keys = slot_keys(k, found)
    openers = found.opener.gather(2, found.assign.transpose(1, 2)).transpose(1, 2)
    assert torch.equal(keys.detach(), data.k.gather(1, openers[..., None].expand_as(data.k)))
    keys.sum().backward()
    assert torch.equal(k.grad, torch.ones_like(k))


@pytest.mark.parametrize(("mode", "value"), READS)
@pytest.mark.parametrize("scale", [0.0, -1.5])
def test_a_scale_that_is_not_above_zero_is_one_like_any_other(batch, mode, value, scale):
    parts = batch(group=2)
    found = allocate(parts.k, 0.3)
    got = read(parts.q, parts.k, parts.v, found, mode=mode, value=value, scale=scale)
    turned = (parts.q * scale, parts.k, parts.v, found)
    torch.testing.assert_close(got, read(*turned, mode=mode, value=value, scale=1.0))


@pytest.mark.parametrize(("mode", "value"), READS)
def test_padding_reads_zero_and_takes_no_part_not_even_as_nan(batch, mode, value):
    data = batch()
    pad = ~data.mask[..., None, None]
    answers = []
    for fill in (1.0, torch.nan):
        q, k, v = (torch.where(pad, fill, x).requires_grad_() for x in (data.q, data.k, data.v))
        found = allocate(k, 0.1, mask=data.mask)
        out = read(q, k, v, found, mode=mode, value=value)
        assert (out[~data.mask] == 0).all()
        answers.append([out, *torch.autograd.grad(out.square().sum(), (q, k, v))])
    assert all(torch.equal(a, b) for a, b in zip(*answers, strict=True))


def test_under_autocast_a_biased_read_is_taken_in_float32(batch):
    data = batch(dtype=torch.float32)
    found = allocate(unit(data.k), 0.1)
    want = read(data.q, data.k, data.v, found, mode="distinct")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = read(data.q, data.k, data.v, found, mode="distinct")
    assert torch.equal(got, want)
