"""`HybridLM` as a model of transformers."""

# B sequences, L tokens

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from operator import index
from typing import Any, SupportsIndex

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.generation import GenerationMixin
from transformers.modeling_outputs import CausalLMOutputWithPast

from ..nn import Heads, HybridLM, Reading, WriteGate
from ..nn.gates import Gate, KeyGate, SaliencyGate
from ..nn.hybrid import MIXERS, ModelState
from ..nn.mixer import Mixer
from ..nn.train import distinct_layers
from ..policy import Concentration
from .config import WrongModelError

# B streams, L tokens, A tokens whose logits are wanted


SILENT = -100  # the label of a token at which nothing is asked
LOSS = ("num_items_in_batch", "ignore_index", "shift_labels")  # words of transformers' loss
# What a forward may be asked for and does not do, and what does.
NOT_HERE = {
    "output_attentions": "slots are read without a matrix of weights",
    "inputs_embeds": "give input_ids",
}


def check_known(settings: Mapping[str, Any], config: PretrainedConfig) -> None:
    """Refuse what would otherwise be passed over, or fail in words of Python's own."""
    settings = {name: value for name, value in settings.items() if value is not None}
    for name, instead in NOT_HERE.items():
        wanted = settings.pop(name, getattr(config, name, None))
        if wanted is not None and wanted is not False:
            raise ValueError(f"this model takes no {name}; {instead}")
    if unknown := sorted(set(settings) - set(LOSS)):
        raise TypeError(
            f"forward takes no {unknown[0]!r}; beside input_ids, attention_mask, past_key_values, "
            "labels, use_cache, return_dict, output_hidden_states and logits_to_keep it takes "
            f"{', '.join(LOSS)}"
        )


def check_cache(cache: object, kind: type[Any]) -> None:
    """Refuse a cache of another model."""
    if cache is not None and not isinstance(cache, kind):
        raise TypeError(
            f"the cache of this model is a {kind.__name__}, got a {type(cache).__name__}; leave "
            "past_key_values out, or give back that of an earlier call"
        )


def select_tokens(
    input_ids: Tensor | None, labels: Tensor | None, kept: SupportsIndex | Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Tokens (B, L), and the places (B, A) whose logits are wanted, None for all of them."""
    if input_ids is None:
        raise ValueError("this model needs input_ids (B, L), got None")
    if input_ids.ndim != 2:
        raise ValueError(
            f"this model needs input_ids (B, L), got {tuple(input_ids.shape)}; one text alone is "
            "input_ids[None]"
        )
    at = _places(input_ids, kept)
    if labels is None:
        return input_ids, at
    if labels.shape != input_ids.shape:
        raise ValueError(
            f"labels are {tuple(labels.shape)} and input_ids {tuple(input_ids.shape)}; give one "
            f"for each token, {SILENT} where nothing is asked"
        )
    if at is not None:
        raise ValueError(f"a loss needs the logits of all tokens, got logits_to_keep={kept}")
    return input_ids, at


def _places(tokens: Tensor, kept: SupportsIndex | Tensor | None) -> Tensor | None:
    L = tokens.shape[-1]
    if isinstance(kept, Tensor):
        return _told(kept, L).to(tokens.device).expand(len(tokens), -1)
    if not isinstance(kept, SupportsIndex | None):
        raise TypeError(
            f"logits_to_keep must be a whole number or a tensor of places, got {kept!r}; "
            "torch.tensor makes one of a list"
        )
    n = 0 if kept is None else index(kept)
    if n < 0:
        raise ValueError(f"logits_to_keep must be 0 tokens or more, got {kept}; 0 keeps all")
    if n == 0 or n >= L:
        return None
    return torch.arange(L - n, L, device=tokens.device).expand(len(tokens), -1)


def _told(kept: Tensor, L: int) -> Tensor:
    """Places (A,) from 0 on; they may be told by their number, also from the end, or by a mask."""
    if kept.dtype == torch.bool and kept.shape == (L,):
        return kept.nonzero()[:, 0]
    whole = not (kept.is_floating_point() or kept.is_complex() or kept.dtype == torch.bool)
    places = kept.long() if whole else kept
    if not whole or kept.ndim != 1 or not bool(((places >= -L) & (places < L)).all()):
        raise ValueError(
            f"logits_to_keep must be a number, places (A,) among {L} tokens or a bool mask ({L},), "
            f"got {kept.dtype} {kept.tolist()}"
        )
    return torch.where(places < 0, places + L, places)


def check_labels(labels: Tensor | None, vocabulary: int, settings: Mapping[str, Any]) -> None:
    """Refuse labels that are no tokens, on the CPU; elsewhere torch does when it is too late."""
    if labels is None:
        return
    shifted = settings.get("shift_labels")
    wanted = labels[:, 1:] if shifted is None else shifted  # the first is nobody's answer
    if not wanted.is_cpu or torch.compiler.is_compiling():
        return
    silent = settings.get("ignore_index")
    silent = SILENT if silent is None else silent
    told = wanted[wanted != silent]
    if told.numel() and not 0 <= int(told.min()) <= int(told.max()) < vocabulary:
        raise ValueError(
            f"labels must be 0 to {vocabulary - 1}, the vocabulary, or {silent} where nothing is "
            f"asked, got {int(told.min())} to {int(told.max())}"
        )


def ends_in_text(attention_mask: Tensor | None) -> None:
    """Refuse padding where the next token is to stand."""
    if attention_mask is None or not attention_mask.shape[1]:
        return
    padded = (attention_mask[:, -1] == 0).nonzero()
    if len(padded):
        raise ValueError(
            f"stream {int(padded[0, 0])} is padded on the right, where its next token is to stand; "
            "pad on the left (padding_side='left')"
        )


def left_padding(attention_mask: Tensor | None, L: int) -> Tensor | None:
    """Which of the last L tokens are real, or None if all are."""
    if attention_mask is None:
        return None
    real = attention_mask[:, max(0, attention_mask.shape[1] - L) :].bool()
    return None if bool(real.all()) else real


Layer = str | Mapping[str, Any]
GATES: Mapping[str, Callable[..., Gate]] = {  # those that judge a token by what it is
    gate.__name__: gate for gate in (WriteGate, KeyGate, SaliencyGate)
}


def mixer(layer: Layer, width: int) -> Mixer[Any]:
    """The layer that a line of the config describes.

    >>> float(mixer({"mixer": "distinct", "tau": 0.2}, 32).tau)
    0.2
    """
    given: dict[str, Any] = dict(layer) if isinstance(layer, Mapping) else {"mixer": layer}
    name = given.pop("mixer", None)
    if not isinstance(name, str) or name not in MIXERS:
        raise ValueError(f"there is no mixer {name!r}; there are {', '.join(MIXERS)}")
    there = {
        "tau" if setting == "concentration" else setting for setting in _settings(MIXERS[name])
    }
    _known(given, there, name)
    for setting, kind in (("heads", Heads), ("reading", Reading)):
        if setting in given and name != "delta":  # whose heads are a number
            given[setting] = _record(kind, given[setting], setting)
    if "tau" in given:
        given["concentration"] = Concentration.fixed(given.pop("tau"))
    if "slot_dtype" in given:
        given["slot_dtype"] = _dtype(given["slot_dtype"])
    if "gate" in given:
        given["gate"] = gate(given["gate"], width)
    return MIXERS[name](width, **given)


def gate(given: bool | Mapping[str, Any], width: int) -> Gate | None:
    """The write gate that a config asks for.

    >>> type(gate({"kind": "KeyGate", "hidden": 8}, 32)).__name__
    'KeyGate'
    """
    if isinstance(given, bool):
        return WriteGate(width) if given else None
    settings = dict(given) if isinstance(given, Mapping) else {}
    kind = settings.pop("kind", None)
    if not isinstance(kind, str) or kind not in GATES:
        raise ValueError(
            f'a gate is true, false or {{"kind": name}} with name one of {", ".join(GATES)}, got '
            f"{given!r}; for a gate of your own build a distinctkv.nn.HybridLM"
        )
    _known(settings, _settings(GATES[kind]), kind)
    return GATES[kind](width, **settings)


def _settings(make: Callable[..., Any]) -> set[str]:
    return set(inspect.signature(make).parameters) - {"width"}


def _record(kind: type[Any], given: object, name: str) -> object:
    """A `Heads` or `Reading` from its fields."""
    there = {field.name for field in fields(kind)}
    if not isinstance(given, Mapping):
        raise ValueError(
            f"{name} must map some of {', '.join(sorted(there))} to numbers or words, got {given!r}"
        )
    _known(given, there, name)
    return kind(**given)


def _dtype(given: object) -> torch.dtype | None:
    found = getattr(torch, given, None) if isinstance(given, str) else given
    if not (found is None and given is None) and not isinstance(found, torch.dtype):
        raise ValueError(f"slot_dtype must name a type of torch, as 'bfloat16', got {given!r}")
    return found


def _known(given: Mapping[str, Any], there: set[str], name: str) -> None:
    """Refuse a setting that would otherwise be passed over, or told of by Python alone."""
    if odd := sorted(set(given) - there):
        raise ValueError(
            f"{name} has no setting {odd[0]!r}; it has {', '.join(sorted(there)) or 'none'}"
        )


# B streams, L tokens, V tokens of the vocabulary


# Names that others have for ours; passed over, they would leave another model.
OTHER_WORDS = {"width": "hidden_size", "vocabulary": "vocab_size", "layer": "layers"}


class HybridConfig(PretrainedConfig):  # type: ignore[misc]
    """Sizes of a `HybridLM`, and its layers from first to last (`mixers` has their settings).

    ``expand`` is that of `HybridLM`: 0 for no network on each token. All else goes to transformers.

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
        **known_to_transformers: Any,  # noqa: ANN401
    ) -> None:
        for word in OTHER_WORDS.keys() & known_to_transformers:
            raise ValueError(f"a config has no {word!r}; here it is {OTHER_WORDS[word]!r}")
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
        super().__init__(**known_to_transformers)


class HybridCache:
    """What the layers hold of the tokens so far, as `generate` carries it along."""

    is_compileable = False

    def __init__(self, state: ModelState) -> None:
        self.state = state
        self.n_tokens = 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Tokens seen, the same in every layer."""
        return self.n_tokens

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Keep these rows of the batch, as beam search asks for."""
        self.state = self.state.picked(beam_idx)

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors held."""
        return self.state.nbytes


class HybridForCausalLM(PreTrainedModel, GenerationMixin):  # type: ignore[misc]
    """A `HybridLM` that transformers can save, load, train and generate with.

    Padding, where ``attention_mask`` is 0, is as if it were not there; give `generate` prompts
    that are padded on the left.

    >>> import torch
    >>> model = HybridForCausalLM(HybridConfig(16, 32, ["distinct"])).eval()
    >>> model.generate(torch.tensor([[3, 1, 2]]), max_new_tokens=4, do_sample=False).shape
    torch.Size([1, 7])
    """

    config_class = HybridConfig
    base_model_prefix = "model"
    main_input_name = "input_ids"
    _is_stateful = True  # tokens cannot be taken back, so no assistant may propose some

    def __init__(self, config: HybridConfig) -> None:
        super().__init__(config)
        width = config.hidden_size
        layers = [mixer(layer, width) for layer in config.layers]
        self.model = HybridLM(config.vocab_size, width, layers, expand=config.expand)
        self.post_init()
        # Of keys: many batches add up in it. Said late, since old versions know modules only.
        self._keep_in_fp32_modules_strict = {"mean"}

    @classmethod
    def from_pretrained(cls, *args: Any, **settings: Any) -> Any:  # noqa: ANN401
        """The model that was saved; a weight that is missing or of another size is refused."""
        told = settings.pop("output_loading_info", False)
        model, info = super().from_pretrained(*args, output_loading_info=True, **settings)
        if lacking := sorted(map(str, (*info["missing_keys"], *info["mismatched_keys"]))):
            raise WrongModelError(
                f"{args[0] if args else 'this folder'} does not hold this model: there is no "
                f"fitting {', '.join(lacking[:4])}; load it with the config it was saved with"
            )
        return (model, info) if told else model

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
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: HybridCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        return_dict: bool | None = None,
        output_hidden_states: bool | None = None,
        logits_to_keep: int | Tensor | None = 0,
        **for_the_loss: Any,  # noqa: ANN401
    ) -> CausalLMOutputWithPast:
        """Logits (B, L, V) for tokens that follow those of the cache, and the loss of ``labels``.

        Labels are the tokens themselves, -100 where nothing is asked; each is the answer of the
        token before it. A cache is made and given back if ``use_cache`` says so. Hidden states are
        what enters the first block and what leaves each, of the last the norm. Logits are those of
        the last ``logits_to_keep`` tokens, or of the tokens at these places or where a mask (L,)
        is true; 0 keeps all.
        """
        check_known(for_the_loss, self.config)
        check_cache(past_key_values, HybridCache)
        tokens, at = select_tokens(input_ids, labels, logits_to_keep)
        check_labels(labels, self.config.vocab_size, for_the_loss)
        if past_key_values is None and use_cache:
            past_key_values = HybridCache(self.model.start(len(tokens)))
        state = None if past_key_values is None else past_key_values.state
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        hidden: list[Tensor] | None = [] if output_hidden_states else None
        padding = left_padding(attention_mask, tokens.shape[1])
        logits = self.model(tokens, state, padding, at=at, hidden=hidden)
        if past_key_values is not None:
            past_key_values.n_tokens += tokens.shape[1]
        found = CausalLMOutputWithPast(
            loss=None if labels is None else self._loss(logits, labels, for_the_loss),
            logits=logits,
            past_key_values=past_key_values,
            hidden_states=None if hidden is None else tuple(hidden),
        )
        return found.to_tuple() if return_dict is False else found

    def _loss(self, logits: Tensor, labels: Tensor, settings: Mapping[str, Any]) -> Tensor:
        """Cross entropy of the next tokens, and what teaches the write gates."""
        loss: Tensor = self.loss_function(
            logits, labels, vocab_size=self.config.vocab_size, **settings
        )
        if self.training:
            answered = nn.functional.pad(labels[:, 1:] != SILENT, (0, 1))
            # Of a batch that comes in parts, a part weighs as much as it asks.
            whole = settings.get("num_items_in_batch")
            share = 1.0 if whole is None else answered.sum() / whole
            for layer in distinct_layers(self.model).values():
                loss = loss + share * layer.write_loss(answered)
        return loss

    def prepare_inputs_for_generation(
        self,
        input_ids: Tensor,
        past_key_values: HybridCache | None = None,
        attention_mask: Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        logits_to_keep: int | Tensor | None = 0,
        **unused: Any,  # noqa: ANN401
    ) -> dict[str, Any]:
        """The tokens that the cache has not seen."""
        check_known({"output_attentions": output_attentions}, self.config)
        check_cache(past_key_values, HybridCache)
        seen = 0 if past_key_values is None else past_key_values.n_tokens
        if seen >= input_ids.shape[1]:
            raise ValueError(
                f"the cache has seen {seen} tokens and {input_ids.shape[1]} were given; give the "
                "whole text, the new tokens behind those it has seen"
            )
        if seen == 0:
            ends_in_text(attention_mask)
        return {
            "input_ids": input_ids[:, seen:],
            "past_key_values": past_key_values,
            "attention_mask": attention_mask,
            "use_cache": use_cache,
            "output_hidden_states": output_hidden_states,
            "logits_to_keep": logits_to_keep,
        }

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        """No: `forward` makes the cache."""
        return False

    def _init_weights(self, module: nn.Module) -> None:
        """Nothing: every layer has drawn its own."""


AutoConfig.register(HybridConfig.model_type, HybridConfig, exist_ok=True)
AutoModelForCausalLM.register(HybridConfig, HybridForCausalLM, exist_ok=True)
