"""The read over ragged slots in Triton: interpreted, compiled, on a GPU, and when it is taken."""

import warnings
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import DynamicCache

from distinctkv import kernels
from distinctkv.hf import attention, distinct_cache
from distinctkv.hf.attention import attention_received
from tests.hf.models import build, greedy, weighs_as_its_tokens
from tests.kernels.processes import needs_triton, run
from tests.kernels.ragged_cases import CASES, draw

pytestmark = pytest.mark.usefixtures("no_grad")
SEVERAL = "a prompt of several tiles"


@pytest.fixture(scope="module")
def wrong(seed):
    return run("tests.kernels.interpret_ragged_attention", str(seed))


PARTS = ["", ", received", ", known", ", with room"]


@needs_triton
@pytest.mark.parametrize("case", ["known", *map("".join, product(CASES, PARTS))])
def test_the_kernel_reads_and_sums_what_torch_does(wrong, case):
    """Also slots with room, and the attention that tokens receive where the sums are known."""
    rounded = case.removesuffix(", with room") == "16 bits"
    assert wrong[case] < (2e-3 if rounded else 2e-5)


@needs_triton
@pytest.mark.slow
def test_the_kernels_compile_for_hopper_and_fit():
    for name, shared in run("tests.kernels.compile_ragged_attention").items():
        assert shared <= 227 * 1024, name


def tensor(**changes):
    """As much of a tensor on a GPU as is looked at."""
    facts = {"is_cuda": True, "dtype": torch.bfloat16, "shape": (1, 2, 3, 64)}
    return SimpleNamespace(**facts | {"requires_grad": False} | changes)


@pytest.mark.parametrize(
    ("changes", "taken"),
    [
        ({}, True),
        ({"is_cuda": False}, False),
        ({"dtype": torch.float64}, False),
        ({"dtype": torch.float16}, False),  # beside keys in bfloat16
        ({"shape": (1, 2, 3, 257)}, False),
        ({"requires_grad": True}, False),
    ],
)
def test_the_kernel_is_taken_where_it_can_be(monkeypatch, changes, taken):
    monkeypatch.setattr(kernels, "installed", lambda: True)
    parts = tensor(**changes), tensor(), tensor(), SimpleNamespace(keys=tensor(), values=tensor())
    with torch.enable_grad():
        assert attention.kernel_takes(*parts) == taken
    monkeypatch.setattr(kernels, "installed", lambda: False)
    assert not attention.kernel_takes(*parts)


def test_gradients_do_not_matter_where_none_are_kept(monkeypatch):
    monkeypatch.setattr(kernels, "installed", lambda: True)
    parts = [tensor(requires_grad=True)] * 3
    assert attention.kernel_takes(*parts, SimpleNamespace(keys=tensor(), values=tensor()))


KINDS = (torch.float32, torch.bfloat16)
BRIEF = ["padding among the queries", "wide", "as in a small model", "as in a large model"]


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, torch.float32) for name in CASES),
        *product(BRIEF, (torch.bfloat16, torch.float16)),
    ],
)
def test_on_a_gpu_the_kernel_reads_what_torch_reads(rng, name, kind):
    parts = draw(rng, **CASES[name] | {"kind": kind, "device": "cuda"})
    assert attention.kernel_takes(parts[0], *parts[1:3], parts[4])
    got, _ = attention.read(*parts)
    want, _ = attention.read(*(_doubled(part) for part in parts))  # torch takes float64
    gap = (got.double() - want).norm() / want.norm()
    assert gap < {torch.float32: 5e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}[kind]


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "kind"),
    list(product(["as in a small model", "as in a large model", SEVERAL], KINDS)),
)
def test_on_a_gpu_the_kernel_finds_the_attention_that_torch_finds(rng, name, kind):
    query, keys, _, real, slots, scaling = draw(
        rng, **CASES[name] | {"kind": kind, "device": "cuda"}
    )
    R, L = keys.shape[2], query.shape[2]
    seen = torch.arange(R - L, R, device="cuda").expand(len(keys), L) + 1
    assert attention.kernel_takes(query, keys, keys, slots)
    got = attention_received(query, keys, real, seen, slots, scaling)
    wide = [_doubled(part) for part in (query, keys)]
    want = attention_received(*wide, real, seen, _doubled(slots), scaling)
    assert (got - want).abs().max() / want.abs().max() < 1e-3


@pytest.mark.gpu
@pytest.mark.parametrize(("G", "D"), [(3, 64), (1, 128), (2, 80)])
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("backend", ["FLASH_ATTENTION", "CUDNN_ATTENTION"])
def test_a_whole_text_is_read_with_its_sums(rng, G, D, kind, backend):
    query, keys, values, real, slots, scaling = draw(
        rng, G=G, D=D, E=D, L=300, R=300, longest=0, kind=kind, device="cuda"
    )
    with sdpa_kernel(getattr(SDPBackend, backend)):
        out, logs = attention.read_with_logsumexp(query, keys, values, scaling)
    want = attention.read(query, keys, values, real, slots, scaling)[0].transpose(1, 2)
    assert (out - want).abs().max() < 3e-2
    seen = torch.arange(300, device="cuda").expand(len(keys), -1) + 1
    args = (query, keys, real, seen, slots, scaling)
    got, again = attention_received(*args, logs), attention_received(*args)
    assert (got - again).abs().max() / again.abs().max() < 1e-3


@pytest.mark.gpu
def test_what_flash_cannot_read_is_left_to_others(rng):
    words = {"L": 30, "R": 30, "D": 64, "E": 64, "longest": 0, "device": "cuda"}
    plain = draw(rng, **words)[:3]
    half = [part.bfloat16() for part in plain]
    assert attention.read_with_logsumexp(*half, 0.1) is not None
    assert attention.read_with_logsumexp(*plain, 0.1) is None
    assert attention.read_with_logsumexp(half[0][:, :, -3:], *half[1:], 0.1) is None
    with sdpa_kernel(SDPBackend.MATH):
        assert attention.read_with_logsumexp(*half, 0.1) is None
    with torch.enable_grad():
        assert attention.read_with_logsumexp(half[0].requires_grad_(), *half[1:], 0.1) is None


@pytest.mark.gpu
def test_care_is_the_same_however_a_whole_text_was_read(seed, text, monkeypatch):
    model, text = build(seed, head_dim=16).to("cuda", torch.bfloat16), text.cuda()
    held, told, read = [], [], attention.read_with_logsumexp

    def noting(*args):
        told.append(read(*args))
        return told[-1]

    for known in (True, False):
        way = noting if known else lambda *_: None
        monkeypatch.setattr("distinctkv.hf.cache.read_with_logsumexp", way)
        cache = distinct_cache(model, 0.5)
        model(text, past_key_values=cache)
        held.append(cache.layers[0].slots.compact())
    assert len(told) == len(cache.layers)
    assert all(told)
    one, other = held
    assert torch.equal(one.lengths, other.lengths)
    assert torch.equal(one.counts, other.counts)
    assert (one.values - other.values).abs().max() < 5e-2


def _doubled(part):
    if isinstance(part, torch.Tensor) and part.is_floating_point():
        return part.double()
    if hasattr(part, "keys"):
        return replace(part, keys=part.keys.double(), values=part.values.double())
    return part


@pytest.mark.gpu
@pytest.mark.parametrize("B", [1, 40])
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_a_read_waits_for_nothing(rng, B):
    words = {"B": B, "H": 3, "G": 3, "D": 64, "E": 64, "R": 40, "longest": 700}
    parts = draw(rng, **words, kind=torch.bfloat16, device="cuda")
    want, _ = attention.read(*parts)  # kernels are built
    torch.cuda.set_sync_debug_mode("error")
    try:
        got, _ = attention.read(*parts)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(got, want)


@pytest.mark.gpu
def test_a_decoded_token_waits_for_the_device_once(seed, text):
    model, text = build(seed).to("cuda"), text.cuda()
    waits = []
    for cache in (DynamicCache(), distinct_cache(model, 1.0)):
        for ids in (text, text[:, :1]):
            model(ids, past_key_values=cache)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                model(text[:, :1], past_key_values=cache)
            finally:
                torch.cuda.set_sync_debug_mode("default")
        waits.append(sum("synchronizing" in str(one.message) for one in said))
    assert waits[1] <= waits[0] + 1


@pytest.mark.gpu
@pytest.mark.parametrize("size", [8, 64])
def test_on_a_gpu_decoding_weighs_slots_as_their_tokens(seed, text, size):
    model = build(seed, head_dim=size).to("cuda")
    ids = text.cuda().repeat(3, 1)
    mask = torch.ones_like(ids)
    mask[1, :50] = 0
    cache = distinct_cache(model, 1.0, trace=True)
    greedy(model, ids, cache, n=80, attention_mask=mask)  # more than wait to be absorbed
    longer = torch.cat((mask, torch.ones_like(mask[:, :80])), 1)
    words = {"attention_mask": longer, "sequences": 3}
    weighs_as_its_tokens(model, ids[:, :1], cache, atol=1e-3, **words)


@pytest.mark.parametrize("odd", ["mask", "lengths", "values", "query"])
def test_shapes_that_do_not_fit_are_refused_before_a_kernel_reads_beyond_them(rng, odd):
    pytest.importorskip("triton")
    from distinctkv.kernels import ragged_attention

    query, keys, values, real, slots, scaling = draw(rng)
    if odd == "mask":
        real = real[:, 1:]
    if odd == "lengths":
        slots = replace(slots, lengths=slots.lengths[:1])
    if odd == "values":
        values = values[:, :, 1:]
    if odd == "query":
        query = query[:1]
    with pytest.raises(ValueError, match=r"a mask \(B, R\) and lengths \(B, H\) must fit"):
        ragged_attention.read(query, keys, values, real, slots, scaling)
