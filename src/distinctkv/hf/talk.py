"""A conversation about a long text: what is said goes through the cache, and is not kept."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from .cache import DistinctCache
from .capturing import captured

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CHUNK = 512  # tokens of a long text that are read at a time
MARKS = ("first-question", "first-answer", "next-question")


class Frame(NamedTuple):
    """What stands before the first question, after it, before a later one, and after that."""

    begin: str
    ask: str
    again: str
    ask_again: str

    @classmethod
    def of(cls, tokenizer: Any) -> Frame:  # noqa: ANN401 - any tokenizer of transformers' kind
        """The frame of the chat template; line ends for a model that has none."""
        if not getattr(tokenizer, "chat_template", None):
            return cls("", "\n", "\n", "\n")
        roles = ("user", "assistant", "user")
        messages = [{"role": r, "content": m} for r, m in zip(roles, MARKS, strict=True)]
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        parts, rest = [], text
        for mark in MARKS:
            before, found, rest = rest.partition(mark)
            if not found:
                raise ValueError(
                    f"the chat template drops or changes messages ({mark!r} is not in what it "
                    "made); give the tokenizer a chat_template that keeps them, or none"
                )
            parts.append(before)
        begin, ask, again = parts
        return cls(begin, ask, again, rest)


class Talk:
    """A model, its words and a cache; a cache that was loaded goes on where it was."""

    def __init__(self, model: PreTrainedModel, tokenizer: Any, cache: DistinctCache) -> None:  # noqa: ANN401
        self.model, self.tokenizer, self.cache = model, tokenizer, cache
        self.frame = Frame.of(tokenizer)
        cache.notes.setdefault("asked", cache.get_seq_length() > 0)
        self.last: Tensor | None = None  # logits after the newest token
        ends = getattr(model.generation_config, "eos_token_id", None)
        ends = ends if isinstance(ends, list) else [ends]
        self.ends = {*ends, tokenizer.eos_token_id} - {None}

    @property
    def asked(self) -> bool:
        """Whether there was a question: then the next one stands in the frame of a later one."""
        return bool(self.cache.notes.get("asked"))

    @property
    def unread(self) -> dict[str, Any]:
        """Of a text that was not read to its end: tokens, their digest, chunks, and its start."""
        return dict(self.cache.notes.get("reading", {}))

    def ids(self, text: str) -> Tensor:
        """The tokens of a text, (1, L); what begins every text only at the beginning."""
        begins = self.unread.get("start", self.cache.get_seq_length()) == 0
        special = begins and not self.frame.begin
        found = self.tokenizer(text, return_tensors="pt", add_special_tokens=special)["input_ids"]
        ids = torch.as_tensor(found).long()
        known = self.model.get_input_embeddings().num_embeddings
        if ids.numel() and int(ids.max()) >= known:
            raise ValueError(
                f"the tokenizer made token {int(ids.max())}, the model knows {known}; take the "
                "tokenizer of this model"
            )
        return ids.to(self.model.device)

    def read(self, text: str, chunk: int = CHUNK) -> Iterator[tuple[int, int]]:
        """Take in a long text before the first question; tokens done, at first too, and in all.

        The same text goes on where it was left, by the same chunks, as if it had not been.
        """
        ids = self.ids(self.frame.begin + text + "\n\n")
        total, digest = ids.shape[1], sha256(ids.cpu().numpy().tobytes()).hexdigest()
        done = self._begin({"tokens": total, "digest": digest, "chunk": chunk})
        yield done, total
        for part in torch.split(ids[:, done:], chunk, dim=1):
            self._feed(part)
            done += part.shape[1]
            if done == total:
                del self.cache.notes["reading"]
            yield done, total

    def _begin(self, reading: dict[str, Any]) -> int:
        """Tokens of this text that were read before, if it is the one that was left."""
        begun, seen = self.unread, int(self.cache.get_seq_length())
        start = int(begun.get("start", seen))
        reading["start"] = start
        if begun and begun != reading:
            raise ValueError(
                f"the talk has read {seen - start:,} of the {begun['tokens']:,} tokens of a text "
                f"in chunks of {begun['chunk']:,}, got another text or chunk "
                f"({reading['tokens']:,} tokens, {reading['chunk']:,}); give the same to go on, or "
                "begin a new talk"
            )
        self.cache.notes["reading"] = reading
        return seen - start

    def ask(self, question: str, most: int = 256) -> Generator[str, None, None]:
        """The answer, likeliest token by likeliest token, piece by piece as it comes.

        What was not read of a text until then is not read any more.
        """
        self.cache.notes.pop("reading", None)
        before, after = self.frame.begin, self.frame.ask
        if self.asked:
            before, after = self.frame.again, self.frame.ask_again
        elif self.cache.get_seq_length():
            before = ""
        for part in torch.split(self.ids(before + question + after), CHUNK, dim=1):
            self._feed(part)
        self.cache.notes["asked"] = True
        with captured(self.model):
            yield from self._said(most)

    def _said(self, most: int) -> Iterator[str]:
        tokens: list[int] = []
        said = ""
        while len(tokens) < most:
            assert self.last is not None
            token = int(self.last.argmax())
            if token in self.ends:
                return
            tokens.append(token)
            self._feed(torch.tensor([[token]], device=self.model.device))
            text = self.tokenizer.decode(tokens, skip_special_tokens=True)
            # Half a character waits for its other half.
            if not text.endswith("\ufffd") or len(tokens) == most:
                yield text[len(said) :]
                said = text

    @torch.no_grad()
    def _feed(self, ids: Tensor) -> None:
        if ids.shape[1]:
            out = self.model(ids, past_key_values=self.cache, logits_to_keep=1)
            self.last = out.logits[0, -1]
