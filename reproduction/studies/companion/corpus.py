"""Novels as bytes or pairs of them: text to train on, held-out segments, and what repeats there."""

# N segments, L tokens predicted in each, which are bytes unless said otherwise

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distinctkv import snapshot

from ...data import DataDamaged
from ...data.download import folders

NOVELS, FOREIGN = "text/english_novels_100.tar.xz", "text/wikitext-2/test.txt"
HELD_OUT = (  # books that are never trained on; of their authors other books may be
    "Bennet_Helen",
    "Conrad_Almayer",
    "Ford_Soldier",
    "Hardy_Madding",
    "Meredith_Feverel",
    "Trollope_Warden",
)
LENGTH, SEGMENTS, FOREIGN_SEGMENTS = 4096, 128, 32
N_GRAMS = (8, 16)  # of bytes
PAIRED_GRAMS = (4, 8)  # of tokens
VOCABULARY, TOY_VOCABULARY = 2048, 400  # tokens that are pairs of pairs of bytes
FAR = 512  # tokens since an n-gram was last met, from which on it is far
PIECE = 1 << 22  # n-grams of the training text that are looked up at once

Bytes = NDArray[Any]  # of 8 bits, or of 16 where tokens are pairs


@dataclass(frozen=True)
class Corpus:
    """Bytes to train on, held-out books in a row, and segments (N, L + 1) to predict."""

    train: Bytes
    books: Bytes
    segments: Mapping[str, Bytes]  # "held out" and "foreign"
    slices: Mapping[str, Mapping[str, NDArray[np.bool_]]]  # of each, masks (N, L) by name
    lengths: NDArray[np.int64]  # bytes of each token of the vocabulary

    @property
    def vocabulary(self) -> int:
        """Tokens there are."""
        return len(self.lengths)

    def first(self, n: int | None, length: int | None = None) -> Corpus:
        """The same with the first segments of each text alone, and their first tokens."""
        stop = None if length is None else length + 1
        segments = {name: rows[:n, :stop] for name, rows in self.segments.items()}
        slices = {
            name: {part: mask[:n, :length] for part, mask in masks.items()}
            for name, masks in self.slices.items()
        }
        return Corpus(self.train, self.books, segments, slices, self.lengths)

    def save(self, path: Path) -> None:
        """Write one compressed file, which `numpy.load` reads, too."""
        arrays = {"train": self.train, "books": self.books, "lengths": self.lengths}
        for name, rows in self.segments.items():
            arrays[f"segments/{name}"] = rows
            for part, mask in self.slices[name].items():
                arrays[f"slices/{name}/{part}"] = np.packbits(mask)
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_LZMA) as file:
            for name, array in arrays.items():
                with file.open(f"{name}.npy", "w", force_zip64=True) as place:
                    np.lib.format.write_array(place, np.asarray(array))
        snapshot.replace(path, buffer.getvalue())

    @classmethod
    def load(cls, path: Path) -> Corpus:
        """Read what `save` wrote."""
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files}
        segments = {
            name.split("/")[1]: rows for name, rows in arrays.items() if "segments/" in name
        }
        slices: dict[str, dict[str, NDArray[np.bool_]]] = {name: {} for name in segments}
        for name, packed in arrays.items():
            if name.startswith("slices/"):
                _, whole, part = name.split("/")
                n, width = segments[whole].shape
                bits = np.unpackbits(packed, count=n * (width - 1))
                slices[whole][part] = bits.astype(bool).reshape(n, width - 1)
        return cls(arrays["train"], arrays["books"], segments, slices, arrays["lengths"])


def read_novels() -> Corpus:
    """The corpus of the study, from the files below ``$DISTINCTKV_DATA``."""
    train, held_out, foreign = read_texts()
    return make_corpus(*(_joined(text) for text in (train, held_out, [foreign])))


def read_pairs(vocabulary: int = VOCABULARY) -> Corpus:
    """The same with tokens that are pairs of pairs of bytes, found in the training text."""
    return paired(*read_texts(), vocabulary)


def read_texts() -> tuple[list[bytes], list[bytes], bytes]:
    """Books to train on, held-out books, and the foreign text."""
    novels, foreign = _find(NOVELS), _find(FOREIGN)
    train: list[bytes] = []
    held_out: list[bytes] = []
    with tarfile.open(novels) as archive:
        for name, text in sorted(_texts(archive)):
            (held_out if name.startswith(HELD_OUT) else train).append(text)
    if len(held_out) != len(HELD_OUT):
        raise DataDamaged(f"{novels} has {len(held_out)} of the {len(HELD_OUT)} books to hold out")
    return train, held_out, foreign.read_bytes()


def _find(name: str) -> Path:
    for folder in folders():
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(
        f"{name} is not below any of {', '.join(map(str, folders()))}; it holds public-domain "
        "novels as text: put it there, or name its folder in DISTINCTKV_DATA"
    )


def _texts(archive: tarfile.TarFile) -> Iterator[tuple[str, bytes]]:
    """Names and texts of the books, with one kind of line end and without a byte-order mark."""
    for member in archive.getmembers():
        file = archive.extractfile(member) if member.isfile() else None
        if file is not None and member.name.endswith(".txt"):
            text = file.read().removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")
            yield Path(member.name).name, text


def _joined(texts: list[bytes]) -> Bytes:
    return np.frombuffer(b"\n\n".join(texts), np.uint8)


def make_corpus(
    train: Bytes,
    books: Bytes,
    foreign: Bytes,
    *,
    length: int = LENGTH,
    n_segments: int = SEGMENTS,
    n_foreign: int = FOREIGN_SEGMENTS,
    sizes: Sequence[int] = N_GRAMS,
    lengths: NDArray[np.int64] | None = None,
) -> Corpus:
    """Segments spread evenly over the held-out text, and the slices of their tokens."""
    segments = {
        "held out": spread(books, length, n_segments),
        "foreign": spread(foreign, length, n_foreign),
    }
    slices = {name: slices_of(rows, train, sizes) for name, rows in segments.items()}
    if lengths is None:
        lengths = np.ones(256, np.int64)
    return Corpus(train, books, segments, slices, lengths)


def paired(
    train: list[bytes],
    held_out: list[bytes],
    foreign: bytes,
    vocabulary: int,
    *,
    length: int = LENGTH,
    n_segments: int = SEGMENTS,
    n_foreign: int = FOREIGN_SEGMENTS,
) -> Corpus:
    """A corpus of tokens: the commonest pairs of bytes and tokens, of the training text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    pairs = Tokenizer(models.BPE())
    pairs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pairs.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, initial_alphabet=alphabet, show_progress=False
    )
    pairs.train_from_iterator((_words(text) for text in train), trainer)

    def tokens(texts: list[bytes]) -> Bytes:
        parts = [pairs.encode(_words(text)).ids for text in texts]
        return np.concatenate([np.array(part, np.int16) for part in parts])

    # A character of a token in this alphabet stands for a byte.
    said = [pairs.id_to_token(i) for i in range(pairs.get_vocab_size())]
    return make_corpus(
        tokens(train), tokens(held_out), tokens([foreign]), length=length, n_segments=n_segments,
        n_foreign=n_foreign, sizes=PAIRED_GRAMS, lengths=np.array([len(one or "") for one in said]),
    )  # fmt: skip


def _words(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def spread(text: Bytes, length: int, n: int) -> Bytes:
    """``n`` segments of ``length`` + 1 bytes at even distances (n, length + 1).

    >>> spread(np.arange(10, dtype=np.uint8), 3, 2)
    array([[0, 1, 2, 3],
           [6, 7, 8, 9]], dtype=uint8)
    """
    if len(text) < length + 1:
        raise ValueError(f"a text of {len(text)} bytes has no segment of {length + 1}")
    starts = np.linspace(0, len(text) - length - 1, n).astype(np.int64)
    rows: Bytes = text[starts[:, None] + np.arange(length + 1)]
    return rows


def slices_of(
    segments: Bytes, train: Bytes, sizes: Sequence[int] = N_GRAMS
) -> dict[str, NDArray[np.bool_]]:
    """Masks (N, L) of the predicted tokens that end an n-gram met before in the same segment.

    The gap is the distance to where it was last met. Rare n-grams never occur in the training text.
    """
    found: dict[str, NDArray[np.bool_]] = {}
    for n in sizes:
        grams = n_grams(segments, n)
        gap = np.zeros(segments.shape, np.int64)
        gap[:, n - 1 :] = gaps(grams)
        gap = gap[:, 1:]
        known = np.zeros(segments.shape, bool)
        known[:, n - 1 :] = _occur(grams, train, n)
        hit, known = gap > 0, known[:, 1:]
        found[f"{n}-gram"] = hit
        found[f"{n}-gram near"] = hit & (gap < FAR)
        found[f"{n}-gram far"] = hit & (gap >= FAR)
        found[f"rare {n}-gram"] = hit & ~known
        found[f"rare {n}-gram far"] = hit & ~known & (gap >= FAR)
    found[f"no {sizes[0]}-gram"] = ~found[f"{sizes[0]}-gram"]
    return found


def n_grams(text: Bytes, n: int) -> NDArray[np.uint64]:
    """A number for the n-gram that ends at each token from the n-th on; equal for equal n-grams.

    Exact for up to 64 bits. Longer ones are mixed from words of 64 bits and may collide, with a
    chance of 2^-64 a pair.
    """
    each, wide = 8 // text.itemsize, np.uint64(8 * text.itemsize)  # tokens of a word, their bits
    size = text.shape[-1] - n + 1
    whole = np.zeros((*text.shape[:-1], max(0, size)), np.uint64)
    for begin in range(0, n, each):
        word = np.zeros_like(whole)
        for place in range(begin, min(begin + each, n)):
            word = (word << wide) | text[..., place : place + size].astype(np.uint64)
        mixed = whole * np.uint64(0x9E3779B97F4A7C15)
        whole = word if begin == 0 else (mixed ^ (mixed >> np.uint64(29))) + word
    return whole


def gaps(grams: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Distance of each n-gram (N, T) to the last like it in its row; 0 if there is none.

    >>> gaps(np.array([[5, 7, 5, 5]], dtype=np.uint64))
    array([[0, 0, 2, 1]])
    """
    order = grams.argsort(axis=1, kind="stable")
    ranked = np.take_along_axis(grams, order, 1)
    apart = np.diff(order, axis=1, prepend=0)
    again = np.zeros(grams.shape, bool)
    again[:, 1:] = ranked[:, 1:] == ranked[:, :-1]
    found = np.zeros(grams.shape, np.int64)
    np.put_along_axis(found, order, np.where(again, apart, 0), 1)
    return found


def _occur(grams: NDArray[np.uint64], train: Bytes, n: int) -> NDArray[np.bool_]:
    """Which n-grams occur anywhere in the training text."""
    asked = np.unique(grams)
    known = np.zeros(len(asked), bool)
    for start in range(0, len(train), PIECE):
        there = np.unique(n_grams(train[start : start + PIECE + n - 1], n))
        place = np.searchsorted(asked, there)
        fits = place < len(asked)
        place, there = place[fits], there[fits]
        known[place[asked[place] == there]] = True
    return known[np.searchsorted(asked, grams)]


def toy(seed: int = 0, length: int = 128, *, pairs: bool = False) -> Corpus:
    """A small corpus of drawn words, in which each paragraph uses a few of them again and again."""
    rng = np.random.default_rng(seed)

    def text(paragraphs: int) -> Bytes:
        letters = rng.integers(97, 123, (400, 5), dtype=np.uint8)
        spaced = np.pad(letters, ((0, 0), (0, 1)), constant_values=32)
        drawn = [rng.choice(400, 12)[rng.integers(0, 12, 60)] for _ in range(paragraphs)]
        return spaced[np.concatenate(drawn)].ravel()

    parts = text(60), text(12), text(8)
    if not pairs:
        return make_corpus(*parts, length=length, n_segments=8, n_foreign=4)
    train, books, foreign = (part.tobytes() for part in parts)
    return paired(
        [train], [books], foreign, TOY_VOCABULARY, length=length, n_segments=8, n_foreign=4
    )
