"""The parts of a model that a cache must know, and the models it knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from .belonging import Belonging
from .errors import UnsupportedModelError, WrongModelError
from .rotary import Rotary
from .weights import Look, difference, look

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Each has a test from a tiny random configuration: keys rotated by halves, full attention.
KNOWN = ("gemma", "llama", "mistral", "phi3", "qwen2", "qwen3")


@dataclass(frozen=True, slots=True, eq=False)
class Anatomy(Belonging):
    """A model's attention modules in order, its rotary settings, and its sizes by name."""

    model: nn.Module  # without its head
    attentions: tuple[nn.Module, ...]
    rotary: Rotary
    config: Any
    sizes: dict[str, Any]

    @property
    def heads(self) -> int:
        """Key-value heads of each layer."""
        return int(self.sizes["kv_heads"])

    @property
    def identity(self) -> dict[str, Any]:
        """Marks by which to know the model, as JSON: its sizes, and its weights as they are now."""
        return {**self.sizes, "weights": self.look().text()}

    def look(self) -> Look:
        """Marks of the weights as they are now; no device is waited for."""
        return look(self.model)

    def device(self, layer: int) -> torch.device:
        """Where a layer computes its keys, also if its weights come there only for that."""
        attention = self.attentions[layer]
        weight = next(attention.parameters(), None)  # packed weights are no parameters
        if weight is not None and not weight.is_meta:
            return weight.device
        hooks = (getattr(part, "_hf_hook", None) for part in attention.modules())
        named = (getattr(hook, "execution_device", None) for hook in hooks)
        found = next((device for device in named if device is not None), None)
        return self.rotary.frequencies.device if found is None else torch.device(found)

    @classmethod
    def of(cls, model: PreTrainedModel) -> Anatomy:
        """The parts of a model, or an error that says why it will not do."""
        from transformers import PreTrainedModel

        if not isinstance(model, PreTrainedModel):
            raise TypeError(
                f"model must be a transformers.PreTrainedModel, got {type(model).__name__}; "
                "of a wrapped model give the one inside"
            )
        config = model.config
        _check_attention(config)
        attentions, rotaries = {}, []
        for module in model.modules():
            # Modules look long for what they do not have.
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
        check_causal(config, *ordered)
        return cls(model.base_model, ordered, Rotary(rotaries[0]), config, _sizes(config))


def same_model(made_for: dict[str, Any], model: dict[str, Any], what: str, way_out: str) -> None:
    """Refuse what was made for a model with another shape or other weights."""
    for name, value in model.items():
        if name != "weights" and made_for.get(name) != value:
            raise WrongModelError(
                f"this {what} is for a model with {name} = {made_for.get(name)!r}, "
                f"the model has {value!r}; {way_out}"
            )
    if "weights" not in made_for:
        raise WrongModelError(
            f"this {what} does not say for which weights it was made: an early version wrote it; "
            "make it anew"
        )
    where = difference(made_for["weights"], model["weights"])
    if where is not None:
        raise WrongModelError(
            f"this {what} is for a model of this shape with other weights: {where} differs (a "
            f"model that was trained on, or has an adapter, is another one); {way_out}"
        )


def check_causal(config: Any, *attentions: nn.Module) -> None:  # noqa: ANN401
    """Refuse a model whose tokens see those after them, which may be slots by then."""
    both_ways = not getattr(config, "is_causal", True)
    both_ways |= bool(getattr(config, "use_bidirectional_attention", False))
    if both_ways or not all(getattr(module, "is_causal", True) for module in attentions):
        raise UnsupportedModelError(
            "attention is not causal (config.is_causal, config.use_bidirectional_attention or "
            "is_causal of a layer says so): tokens see those after them; use a DynamicCache for it"
        )


def _check_attention(config: Any) -> None:  # noqa: ANN401 - configurations share no class
    kind = getattr(config, "model_type", None)
    if kind not in KNOWN:
        raise UnsupportedModelError(
            f"model type {kind!r} is not one this cache was tested with ({', '.join(KNOWN)}); "
            "use a DynamicCache for it"
        )
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"}:
        raise UnsupportedModelError(
            f"layers of type {sorted(kinds - {'full_attention'})} have a cache of their own; "
            "only models with full attention in every layer can merge"
        )
    window = getattr(config, "sliding_window", None)
    if window is not None:
        raise UnsupportedModelError(
            f"sliding_window is {window}: tokens beyond it must be forgotten, slots remember; "
            "if the model was trained without a window, set config.sliding_window to None"
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
