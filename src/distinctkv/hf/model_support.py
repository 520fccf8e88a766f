"""Supported models, and what a cache must know of one: attention modules, sizes, rotation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from .config import UnsupportedModelError, WrongModelError
from .metric import Rotary, SharedByCopy

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Each has a test from a tiny random configuration: keys rotated by halves, full attention.
MODELS = ("gemma", "llama", "mistral", "phi3", "qwen2", "qwen3")
SAMPLES = 8  # elements of each parameter in a fingerprint
ROUNDING, SMALLEST = 2.0**-7, 2.0**-24  # how far a change of dtype moves an element


@dataclass(frozen=True, slots=True, eq=False)
class ModelSpec(SharedByCopy):
    """A model's attention modules in order, its rotary settings, and its sizes by name."""

    model: nn.Module  # without its head
    attentions: tuple[nn.Module, ...]
    rotary: Rotary
    config: Any
    sizes: dict[str, Any]
    heads: int  # key-value heads of each layer
    head_dim: int

    @classmethod
    def of(cls, model: PreTrainedModel) -> ModelSpec:
        """The parts of a model; raises `UnsupportedModelError` with the reason."""
        config = model.config
        _check_attention(config)
        attentions, rotaries = {}, []
        for module in model.modules():
            index = vars(module).get("layer_idx")
            if isinstance(index, int) and hasattr(module, "scaling"):
                attentions[index] = module
            if "inv_freq" in module._buffers:
                rotaries.append(module)
        n_layers = config.num_hidden_layers
        if sorted(attentions) != list(range(n_layers)) or len(rotaries) != 1:
            raise UnsupportedModelError(
                f"{type(model).__name__} has {len(attentions)} attention layers of {n_layers} and "
                f"{len(rotaries)} rotary modules where 1 is needed; use a DynamicCache for it"
            )
        ordered = tuple(attentions[index] for index in range(n_layers))
        both_ways = not getattr(config, "is_causal", True)
        both_ways |= bool(getattr(config, "use_bidirectional_attention", False))
        if both_ways or not all(getattr(module, "is_causal", True) for module in ordered):
            raise UnsupportedModelError(
                "attention is not causal (is_causal or use_bidirectional_attention); use a "
                "DynamicCache for this model"
            )
        sizes = _sizes(config)
        rotary = Rotary(rotaries[0])
        return cls(
            model.base_model, ordered, rotary, config, sizes, sizes["kv_heads"], sizes["head_dim"]
        )

    @property
    def identity(self) -> dict[str, Any]:
        """Sizes and a fingerprint of the weights as they are now, as JSON."""
        return {**self.sizes, "weights": fingerprint(self.model)}

    def check_same(self, identity: dict[str, Any], what: str, way_out: str) -> None:
        """Raise `WrongModelError` for what was made for a model of other sizes or weights."""
        for name, value in self.sizes.items():
            if identity.get(name) != value:
                raise WrongModelError(
                    f"this {what} is for a model with {name} = {identity.get(name)!r}, the model "
                    f"has {value!r}; {way_out}"
                )
        different = _difference(identity["weights"], fingerprint(self.model))
        if different is not None:
            raise WrongModelError(
                f"this {what} is for a model with other weights: {different} differs (fine-tuning "
                f"or an adapter makes another model); {way_out}"
            )

    def device(self, layer: int) -> torch.device:
        """Where a layer computes its keys, also if its weights are offloaded."""
        attention = self.attentions[layer]
        weight = next(attention.parameters(), None)  # quantised weights are no parameters
        if weight is not None and not weight.is_meta:
            return weight.device
        hooks = (getattr(part, "_hf_hook", None) for part in attention.modules())
        named = (getattr(hook, "execution_device", None) for hook in hooks)
        found = next((device for device in named if device is not None), None)
        return self.rotary.frequencies.device if found is None else torch.device(found)


def fingerprint(model: nn.Module) -> dict[str, list[Any]]:
    """By the name of each parameter its dtype and a few elements; none of what cannot be read."""
    found: dict[str, list[Any]] = {}
    for name, weight in model.named_parameters():
        elements: list[float] = []
        # Quantised and distributed parameters are subclasses.
        if type(weight) is nn.Parameter and weight.is_floating_point() and not weight.is_meta:
            flat = weight.detach().flatten()
            step = max(1, len(flat) // SAMPLES)
            elements = flat[step // 2 :: step][:SAMPLES].float().tolist()
        found[name.replace("_orig_mod.", "")] = [str(weight.dtype).split(".")[1], *elements]
    return found


def _difference(one: dict[str, list[Any]], other: dict[str, list[Any]]) -> str | None:
    """A parameter in which two fingerprints differ by more than a change of dtype explains."""
    for name in sorted(one.keys() | other.keys()):
        if name not in one or name not in other:
            return name
        (dtype, *elements), (other_dtype, *others) = one[name], other[name]
        if not elements or not others:
            continue
        a, b = torch.tensor(elements), torch.tensor(others)
        exact = dtype == other_dtype
        near = torch.equal(a, b) if exact else torch.allclose(a, b, ROUNDING, SMALLEST)
        if not near:
            return name
    return None


def _check_attention(config: Any) -> None:  # noqa: ANN401 - configurations share no class
    kind = getattr(config, "model_type", None)
    if kind not in MODELS:
        raise UnsupportedModelError(
            f"model type {kind!r} is not supported ({', '.join(MODELS)} are); use a DynamicCache"
        )
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"}:
        raise UnsupportedModelError(
            f"layers of type {sorted(kinds - {'full_attention'})} have a cache of their own; only "
            "models with full attention in every layer are supported"
        )
    window = getattr(config, "sliding_window", None)
    if window is not None:
        raise UnsupportedModelError(
            f"sliding_window is {window}: older tokens must be forgotten, but slots keep them; if "
            "the model was trained without a window, set config.sliding_window to None"
        )


def _sizes(config: Any) -> dict[str, Any]:  # noqa: ANN401
    heads = config.num_attention_heads
    return {
        "model_type": config.model_type,
        "layers": config.num_hidden_layers,
        "heads": heads,
        "kv_heads": getattr(config, "num_key_value_heads", None) or heads,
        "head_dim": getattr(config, "head_dim", None) or config.hidden_size // heads,
        "vocabulary": config.vocab_size,
    }
