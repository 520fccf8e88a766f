"""What the kernels of the cache make on a GPU: what torch makes, and slots as on the CPU."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from distinctkv import kernels
from distinctkv.hf import FAST, MergePolicy, distinct_cache, merge
from distinctkv.hf.metric import Rotary, Scale
from distinctkv.hf.slots import FLAT, Slots, Source, pool
from tests.hf.models import build
from tests.hf.rotary_reference import turned
from tests.kernels.processes import needs_triton

pytestmark = [pytest.mark.gpu, needs_triton, pytest.mark.usefixtures("no_grad")]
PLANS = {
    "threshold": {"threshold": 1.0},
    "horizon": {"threshold": 1.0, "merge": MergePolicy(importance=0.5, horizon=20)},
    "kept": {"kept": 0.4},
    "fast": {"kept": 0.4, "merge": FAST},
    "budget": {"budget": 60},
}


@pytest.fixture
def draw(seed):
    """Random numbers on the device."""
    return partial(torch.randn, generator=torch.Generator("cuda").manual_seed(seed), device="cuda")


def slots_of(draw, lengths, D, C, kind=torch.float32):
    """So many slots of each head, far along a text, with keys and values far from zero."""
    n = int(lengths.sum())
    positions = torch.arange(n, dtype=torch.int32, device="cuda") * 37
    ones, none = torch.ones_like(positions), draw(0)
    keys, values = (3 + draw(n, D)).to(kind), (2 + draw(n, C)).to(kind)
    return Slots(keys, values, ones, positions, none, none, lengths)


@pytest.mark.parametrize(
    ("D", "C", "kind"),
    [(64, 64, torch.bfloat16), (128, 128, torch.bfloat16), (80, 40, torch.float32)],
)
def test_features_are_those_of_float64(draw, D, C, kind):
    from distinctkv.kernels import features

    rotary = Rotary(SimpleNamespace(inv_freq=1e4 ** -torch.linspace(0, 1, D // 2).cuda()))
    rows = slots_of(draw, torch.tensor([[700, 130]]), D, C, kind)
    scale = Scale(draw(2, D, D).tril(), 1 + draw(2).abs())
    there = rows.mask()
    table, wrong = features.tabulate(features.Rows(rows, there), None, scale, rotary, horizon=None)
    # As the model rounds it: a position times a frequency in float32.
    angle = (rows.positions.float()[:, None] * rotary.frequencies).double()
    first, second = rows.keys.double().chunk(2, 1)
    cos, sin = angle.cos(), angle.sin()
    back = torch.cat((first * cos + second * sin, second * cos - first * sin), 1)
    for head, (begin, end) in enumerate(((0, 700), (700, 830))):
        values = rows.values[begin:end].double() / scale.size[head].double()
        want = torch.cat((back[begin:end] @ scale.factor[head].double(), values), 1)
        want = (want - want.mean(0)) * 2.0 ** int(table.power[head])
        got = sum(part[begin:end, : D + C].double() for part in table.rows[:2])
        assert (
            float((got - want).norm() / want.norm()) < 5e-6
        )  # float32 itself is off by about 1e-6
        sizes = table.rows[2][begin:end].double()
        torch.testing.assert_close(sizes, want.square().sum(1), rtol=1e-5, atol=0.0)
    assert not wrong


@pytest.mark.parametrize(("D", "kind"), [(64, torch.float32), (128, torch.bfloat16)])
def test_moments_of_queries_and_squares_of_values_are_those_of_float64(draw, D, kind):
    from distinctkv.kernels import reductions

    L = 1100
    queries, values = draw(2, 2, 6, L, D).to(kind), draw(2, 2, 2, L, 40).to(kind)
    angles, real = 100 * draw(2, L, D // 2), draw(2, L) < 1.0
    got = reductions.sums([*queries], [*values], angles.cos(), angles.sin(), real)
    there = real[:, None, :, None]
    plain = turned(queries, angles[:, None].expand(2, 2, 6, L, D // 2)) * there
    moments = (plain.mT @ plain).view(2, 2, 2, 3, D, D).mean(3)
    squares = (values.double() * there).square().sum((-2, -1))
    for one, want in zip(got, (moments, squares), strict=True):
        assert float((one - want).norm() / want.norm()) < 2e-6


def test_pooled_slots_are_those_of_torch(draw, monkeypatch):
    slots = slots_of(draw, torch.tensor([[1200, 800]]), 24, 40, torch.bfloat16)
    weight, received = draw(2, 2000).abs()
    slots = replace(slots, weight=weight, received=received)
    order = torch.arange(2000, device="cuda")
    to = torch.where(order < 299, order, (draw(2000).abs() * 300).long() % 300 - 1)
    opens = order < 299
    made = [pool([Source(slots, to, opens)], torch.tensor([[100, 199]]))]
    monkeypatch.setattr(kernels, "available", lambda *_: False)
    made.append(pool([Source(slots, to, opens)], torch.tensor([[100, 199]])))
    for name in FLAT:
        torch.testing.assert_close(*(getattr(one, name) for one in made))


@pytest.mark.parametrize("most", [1, 2**30])
@pytest.mark.parametrize("name", PLANS)
def test_slots_are_those_of_the_cpu(seed, text, monkeypatch, name, most):
    for where in ("MAX_BYTES", "MAX_BYTES_CUDA", "MAX_BYTES_EVER"):
        monkeypatch.setattr(merge, where, most)
    ids = torch.cat((text, text.flip(1)))
    mask = torch.ones_like(ids)
    mask[1, :31] = 0
    caches = []
    for device in ("cpu", "cuda"):
        model = build(seed).to(device)
        caches.append(distinct_cache(model, **PLANS[name]))
        for start, end in ((0, 60), (60, 120)):
            seen = mask[:, :end].to(device)
            model(ids[:, start:end].to(device), attention_mask=seen, past_key_values=caches[-1])
    for here, there in zip(*(cache.layers for cache in caches), strict=True):
        one, other = here.slots.compact(), there.slots.compact()
        for part in ("lengths", "positions", "counts"):
            assert torch.equal(getattr(one, part), getattr(other, part).cpu())
