"""`HybridLM` as a model of transformers: its config, `save_pretrained`, `generate`, a loss.

A layer of the config is the name of a mixer, or that name with settings in plain JSON (`mixers`):
``{"mixer": "distinct", "heads": {"count": 2, "size": 32}, "tau": 0.15}``. The logits are products
with the embedding, so there is one matrix and nothing to tie.

Importing this module, and nothing else of distinctkv, tells `AutoConfig` and `AutoModelForCausalLM`
of the model, so that they load what was saved.
"""

# B streams, L tokens, V tokens of the vocabulary

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.generation import GenerationMixin
from transformers.modeling_outputs import CausalLMOutputWithPast

from ..nn import HybridLM
from ..nn.hybrid import ModelState
from ..nn.train import distinct_layers
from . import asked
from .asked import SILENT
from .errors import WrongModelError
from .mixers import Layer, mixer

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
        asked.known(for_the_loss, self.config)
        asked.ours(past_key_values, HybridCache)
        tokens, at = asked.of(input_ids, labels, logits_to_keep)
        asked.answers(labels, self.config.vocab_size, for_the_loss)
        if past_key_values is None and use_cache:
            past_key_values = HybridCache(self.model.start(len(tokens)))
        state = None if past_key_values is None else past_key_values.state
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        hidden: list[Tensor] | None = [] if output_hidden_states else None
        padding = asked.padding(attention_mask, tokens.shape[1])
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
        asked.known({"output_attentions": output_attentions}, self.config)
        asked.ours(past_key_values, HybridCache)
        seen = 0 if past_key_values is None else past_key_values.n_tokens
        if seen >= input_ids.shape[1]:
            raise ValueError(
                f"the cache has seen {seen} tokens and {input_ids.shape[1]} were given; give the "
                "whole text, the new tokens behind those it has seen"
            )
        if seen == 0:
            asked.ends_in_text(attention_mask)
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
