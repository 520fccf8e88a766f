"""`HybridLM` as a model of transformers."""

# B sequences, L tokens, A tokens whose logits are wanted, V tokens of the vocabulary

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.generation import GenerationMixin
from transformers.modeling_outputs import CausalLMOutputWithPast

from ..nn import Heads, HybridLM, Reading, WriteGate
from ..nn.gates import Gate, KeyGate, KeyNoveltyGate, MetricGate, NoveltyGate, SaliencyGate
from ..nn.hybrid import MIXERS, ModelState
from ..nn.mixer import Mixer
from ..nn.train import distinct_layers
from ..policy import Concentration
from .config import WrongModelError

IGNORE_INDEX = -100  # the label of a token without a loss
LOSS_OPTIONS = {"num_items_in_batch", "ignore_index", "shift_labels"}
Layer = str | Mapping[str, Any]
TOKEN_GATES: Mapping[str, Callable[..., Gate]] = {
    gate.__name__: gate for gate in (WriteGate, KeyGate, SaliencyGate)
}
KEY_GATES: Mapping[str, Callable[..., Gate]] = {
    gate.__name__: gate for gate in (MetricGate, KeyNoveltyGate)
}
GATES = [NoveltyGate.__name__, *TOKEN_GATES, *KEY_GATES]


def make_mixer(layer: Layer, width: int) -> Mixer[Any]:
    """The layer that an entry of the config describes.

    >>> float(make_mixer({"mixer": "distinct", "tau": 0.2}, 32).tau)
    0.2
    """
    settings: dict[str, Any] = dict(layer) if isinstance(layer, Mapping) else {"mixer": layer}
    name = settings.pop("mixer", None)
    if name not in MIXERS:
        raise ValueError(f"there is no mixer {name!r}; there are {', '.join(MIXERS)}")
    if isinstance(settings.get("heads"), Mapping):
        settings["heads"] = Heads(**settings["heads"])
    if "reading" in settings:
        settings["reading"] = Reading(**settings["reading"])
    if "tau" in settings:
        settings["concentration"] = Concentration.fixed(settings.pop("tau"))
    if isinstance(settings.get("concentration"), Mapping):
        settings["concentration"] = Concentration(**settings["concentration"])
    if isinstance(settings.get("slot_dtype"), str):
        settings["slot_dtype"] = getattr(torch, settings["slot_dtype"])
    if "gate" in settings:
        settings["gate"] = make_gate(settings["gate"], width, settings.get("heads", Heads()).size)
    return MIXERS[name](width, **settings)


def make_gate(gate: bool | Mapping[str, Any], width: int, size: int) -> Gate | None:
    """The gate that a config asks for, in a layer of this width with heads of this size.

    >>> make_gate({"kind": "NoveltyGate", "threshold": 0.25}, 32, 16).threshold.item()
    0.25
    """
    if isinstance(gate, bool):
        return WriteGate(width) if gate else None
    settings = dict(gate)
    kind = settings.pop("kind", None)
    if kind not in GATES:
        raise ValueError(
            f'a gate is true, false or {{"kind": name}} with name one of {", ".join(GATES)}, got '
            f"{gate!r}"
        )
    if kind == NoveltyGate.__name__:
        return NoveltyGate(**settings)
    return (
        TOKEN_GATES[kind](width, **settings)
        if kind in TOKEN_GATES
        else KEY_GATES[kind](size, **settings)
    )


class HybridConfig(PretrainedConfig):  # type: ignore[misc]
    """Sizes of a `HybridLM`, and its layers from first to last (`make_mixer` has their settings).

    ``expand`` is that of `HybridLM`: 0 for no network on each token.

    >>> HybridConfig(vocab_size=97, hidden_size=64, layers=["mamba2", "distinct"]).layers
    ['mamba2', 'distinct']
    """

    model_type = "distinctkv_hybrid"

    def __init__(
        self,
        vocab_size: int = 256,
        hidden_size: int = 64,
        layers: Sequence[Layer] = ("mamba2", "distinct"),
        expand: int = 0,
        **options: Any,  # noqa: ANN401
    ) -> None:
        if isinstance(layers, str) or not layers:
            raise ValueError(f"layers must be a list of 1 layer or more, got {layers!r}")
        if min(vocab_size, hidden_size) < 1 or expand < 0:
            raise ValueError(
                "vocab_size and hidden_size must be at least 1 and expand 0 or more, got "
                f"{vocab_size}, {hidden_size} and {expand}"
            )
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.layers = [dict(layer) if isinstance(layer, Mapping) else layer for layer in layers]
        self.num_hidden_layers = len(self.layers)
        self.expand = expand
        super().__init__(**options)


class HybridCache:
    """The state of the layers after the tokens so far, as `generate` passes it on."""

    is_compileable = False

    def __init__(self, state: ModelState) -> None:
        self.state = state
        self.n_tokens = 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Tokens seen, the same in every layer."""
        return self.n_tokens

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Keep these rows of the batch, for beams."""
        self.state = self.state.index_select(beam_idx)

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors held."""
        return self.state.nbytes


class HybridForCausalLM(PreTrainedModel, GenerationMixin):  # type: ignore[misc]
    """A `HybridLM` that transformers can save, load, train and generate with.

    Padding, where ``attention_mask`` is 0, changes nothing; `generate` needs it on the left.

    >>> import torch
    >>> model = HybridForCausalLM(HybridConfig(16, 32, ["distinct"])).eval()
    >>> model.generate(torch.tensor([[3, 1, 2]]), max_new_tokens=4, do_sample=False).shape
    torch.Size([1, 7])
    """

    config_class = HybridConfig
    base_model_prefix = "model"
    main_input_name = "input_ids"
    _is_stateful = True  # tokens cannot be cropped, so there is no assisted decoding

    def __init__(self, config: HybridConfig) -> None:
        super().__init__(config)
        width = config.hidden_size
        layers = [make_mixer(layer, width) for layer in config.layers]
        self.model = HybridLM(config.vocab_size, width, layers, expand=config.expand)
        self.post_init()
        # The mean key sums many batches, and thresholds decide. Set late: old versions of
        # transformers know modules only.
        self._keep_in_fp32_modules_strict = {"mean", "threshold", "raw"}

    @classmethod
    def from_pretrained(cls, *args: Any, **settings: Any) -> Any:  # noqa: ANN401
        """The saved model; raises if a weight is missing or of another size."""
        with_info = settings.pop("output_loading_info", False)
        model, info = super().from_pretrained(*args, output_loading_info=True, **settings)
        if lacking := sorted(map(str, (*info["missing_keys"], *info["mismatched_keys"]))):
            raise WrongModelError(
                f"{args[0] if args else 'this folder'} does not hold this model: there is no "
                f"fitting {', '.join(lacking[:4])}; load it with the config it was saved with"
            )
        return (model, info) if with_info else model

    def get_input_embeddings(self) -> nn.Module:
        """The embedding, which gives the logits as well."""
        return self.model.embed

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        """Another embedding, which gives the logits as well."""
        self.model.embed = value

    def get_output_embeddings(self) -> None:
        """None: logits are products with the input embedding."""

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        past_key_values: HybridCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        return_dict: bool | None = None,
        output_hidden_states: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **loss_options: Any,  # noqa: ANN401
    ) -> CausalLMOutputWithPast:
        """Logits (B, L, V) for tokens that follow those of the cache, and the loss of ``labels``.

        Labels are the tokens themselves, -100 for no loss; each is the target of the token before
        it. With ``use_cache`` a cache is made and returned. Hidden states are the input of the
        first block and the output of each, of the last normalised. ``logits_to_keep`` is a number
        of last tokens, 0 for all, or the indices (A,) of tokens.
        """
        if unknown := sorted(set(loss_options) - LOSS_OPTIONS):
            raise TypeError(f"forward takes no {unknown[0]!r}")
        if past_key_values is None and use_cache:
            past_key_values = HybridCache(self.model.start(len(input_ids)))
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        hidden: list[Tensor] | None = [] if output_hidden_states else None
        L = input_ids.shape[1]
        mask = None
        if attention_mask is not None and not bool((attention_mask[:, -L:] != 0).all()):
            mask = attention_mask[:, -L:].bool()
        state = None if past_key_values is None else past_key_values.state
        at = _indices(logits_to_keep, input_ids)
        logits = self.model(input_ids, state, mask, at=at, hidden=hidden)
        if past_key_values is not None:
            past_key_values.n_tokens += L
        found = CausalLMOutputWithPast(
            loss=None if labels is None else self._loss(logits, labels, loss_options),
            logits=logits,
            past_key_values=past_key_values,
            hidden_states=None if hidden is None else tuple(hidden),
        )
        return found.to_tuple() if return_dict is False else found

    def _loss(self, logits: Tensor, labels: Tensor, options: Mapping[str, Any]) -> Tensor:
        """Cross entropy of the next tokens, and the loss of the write gates."""
        loss: Tensor = self.loss_function(
            logits, labels, vocab_size=self.config.vocab_size, **options
        )
        if self.training:
            targets = nn.functional.pad(labels[:, 1:] != IGNORE_INDEX, (0, 1))
            # With gradient accumulation a part of a batch counts by its number of targets.
            whole = options.get("num_items_in_batch")
            share = 1.0 if whole is None else targets.sum() / whole
            for layer in distinct_layers(self.model).values():
                loss = loss + share * layer.write_loss(targets)
        return loss

    def prepare_inputs_for_generation(
        self,
        input_ids: Tensor,
        past_key_values: HybridCache | None = None,
        attention_mask: Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        logits_to_keep: int | Tensor | None = 0,
        **unused: Any,  # noqa: ANN401
    ) -> dict[str, Any]:
        """The tokens that the cache has not seen."""
        seen = 0 if past_key_values is None else past_key_values.get_seq_length()
        if seen >= input_ids.shape[1]:
            raise ValueError(
                f"the cache has seen {seen} tokens and {input_ids.shape[1]} were given; give the "
                "whole text, the new tokens behind those it has seen"
            )
        if attention_mask is not None and seen == 0 and not bool(attention_mask[:, -1].all()):
            raise ValueError("prompts are padded on the right; pad with padding_side='left'")
        return {
            "input_ids": input_ids[:, seen:],
            "past_key_values": past_key_values,
            "attention_mask": attention_mask,
            "use_cache": use_cache,
            "output_hidden_states": output_hidden_states,
            "logits_to_keep": 0 if logits_to_keep is None else logits_to_keep,
        }

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # `forward` makes the cache

    def _init_weights(self, module: nn.Module) -> None:
        """Nothing: every layer has initialised its own."""


def _indices(keep: int | Tensor, tokens: Tensor) -> Tensor | None:
    """The tokens (B, A) whose logits are wanted, None for all."""
    L = tokens.shape[1]
    if isinstance(keep, Tensor):
        return torch.arange(L, device=tokens.device)[keep].expand(len(tokens), -1)
    if not 0 < keep < L:
        return None
    return torch.arange(L - keep, L, device=tokens.device).expand(len(tokens), -1)


AutoConfig.register(HybridConfig.model_type, HybridConfig, exist_ok=True)
AutoModelForCausalLM.register(HybridConfig, HybridForCausalLM, exist_ok=True)
