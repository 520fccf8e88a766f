"""Names of parts: a digest of the shard, the policy and the feed that a part was made of."""

from __future__ import annotations

import dis
import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from .parts import filesystem

# Types whose repr is exact.
PLAIN = frozenset({type(None), type(...), bool, int, float, complex, range})
NAMED = (type, ModuleType, BuiltinFunctionType, np.ufunc)
CODE = (
    *("co_code", "co_consts", "co_names", "co_varnames", "co_freevars", "co_cellvars"),
    *("co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_flags", "co_exceptiontable"),
)


class UnnameableError(TypeError):
    """Something that cannot be told from others of its kind by what it holds."""


def fingerprint(*things: Any) -> str:  # noqa: ANN401
    """A name that changes with what it is for.

    Arrays, text, numbers and lists, tuples, dicts and sets of these are told apart by content, what
    can be saved by what it would save, and functions by their code, by what they hold, and by what
    they read from their module.

    >>> fingerprint((1, "a")) == fingerprint((1, "a"))
    True
    """
    return _short(*map(_Namer().digest, things))


def fingerprint_shard(shard: Any) -> str:  # noqa: ANN401
    """The same for a shard, whose files are told apart by size and time as well."""
    return _short(_shard(shard))


def fingerprint_maker(make: Any) -> str:  # noqa: ANN401
    """The same for what makes a part, in which objects, such as a model, are told by their kind."""
    return _short(_Namer(strict=False).digest(make))


def join_name(*names: str) -> str:
    """The name of what parts become."""
    place = names[0].rpartition("/")[0]
    ends = (name.rpartition("/")[2].encode() for name in names)
    return f"{place}/{_short(*ends)}.part"


def is_part(name: str) -> bool:
    """Whether a file's name is one that is given to parts."""
    return re.fullmatch(r"([0-9a-f]{24}-)?[0-9a-f]{24}\.part", name) is not None


def _short(*pieces: bytes) -> str:
    return _sum(*pieces).hex()[:24]


def _sum(*pieces: bytes) -> bytes:
    """A digest of pieces, which cannot run into each other."""
    state = hashlib.sha256()
    for piece in pieces:
        state.update(b"%d:" % len(piece))
        state.update(piece)
    return state.digest()


def _text(text: object) -> bytes:
    return str(text).encode(errors="surrogatepass")


def _shard(shard: Any) -> bytes:  # noqa: ANN401
    if isinstance(shard, str | os.PathLike):
        place = os.fspath(shard)
        return _sum(b"place", *map(_text, (place, *_seen(place))))
    return _Namer(looks=True).digest(shard)


def _seen(place: str) -> list[object]:
    """What tells a file, a folder or a URL from what was there before."""
    with suppress(OSError):
        if (remote := filesystem(place)) is not None:
            return [sorted(remote.info(place).items())]
        if Path(place).is_dir():
            within = sorted(path for path in Path(place).rglob("*") if path.is_file())
            return [(str(path), *_file(str(path))) for path in within]
    return _file(place)


def _file(place: str) -> list[object]:
    """Size and time of a file of this machine."""
    with suppress(OSError, ValueError):
        seen = os.stat(place)  # not of a Path, which is slow: lines of text come here too
        if stat.S_ISREG(seen.st_mode):
            return [seen.st_size, seen.st_mtime_ns]
    return []


def _unnameable(thing: object) -> UnnameableError:
    kind = type(thing).__name__
    return UnnameableError(f"a {kind} cannot be told from others by what it holds")


class _Namer:
    """Digests of one thing and of all that it holds; ``looks`` at files that text names.

    Unless it is ``strict``, what has no name is told by its kind alone.
    """

    def __init__(self, *, looks: bool = False, strict: bool = True) -> None:
        self.looks, self.strict = looks, strict
        # Functions may call each other: one that has been met is told by its number.
        self.met: dict[int, tuple[object, bytes]] = {}

    def digest(self, thing: Any) -> bytes:  # noqa: ANN401
        for way in (self._value, self._array, self._holder, self._function, self._saved):
            if (found := way(thing)) is not None:
                return found
        if self.strict:
            raise _unnameable(thing)
        return _text(type(thing))

    def _all(self, kind: str, things: Iterable[Any]) -> bytes:
        return _sum(kind.encode(), *map(self.digest, things))

    def _value(self, thing: Any) -> bytes | None:  # noqa: ANN401
        kind = type(thing)
        if kind in PLAIN:
            return _sum(kind.__name__.encode(), repr(thing).encode())
        if kind is str:
            # Text in a shard may name a file here, though most of it is lines.
            return _sum(b"str", _text(thing), *map(_text, _file(thing) if self.looks else ()))
        if kind in (bytes, bytearray):
            return _sum(kind.__name__.encode(), thing)
        if isinstance(thing, os.PathLike):
            place = os.fspath(thing)
            return _sum(b"path", _text(place), *map(_text, _seen(place) if self.looks else ()))
        return None

    def _array(self, thing: Any) -> bytes | None:  # noqa: ANN401
        if not isinstance(thing, np.ndarray | np.generic):
            return None
        kind = _text((type(thing).__name__, thing.dtype, thing.shape))
        if thing.dtype.hasobject or isinstance(thing, np.ma.MaskedArray):
            return _sum(kind, self.digest(thing.tolist()))
        return _sum(kind, hashlib.sha256(thing.tobytes()).digest())

    def _holder(self, thing: Any) -> bytes | None:  # noqa: ANN401
        kind = type(thing)
        if kind in (list, tuple) or (isinstance(thing, tuple) and hasattr(kind, "_fields")):
            return self._all(kind.__name__, thing)
        if kind is dict:
            return self._all("dict", (half for pair in thing.items() for half in pair))
        if kind in (set, frozenset):
            return _sum(kind.__name__.encode(), *sorted(map(self.digest, thing)))
        if kind is slice:
            return self._all("slice", (thing.start, thing.stop, thing.step))
        if kind is re.Pattern:
            return self._all("pattern", (thing.pattern, thing.flags))
        return None

    def _function(self, thing: Any) -> bytes | None:  # noqa: ANN401
        if isinstance(thing, CodeType):
            return self._all("code", (getattr(thing, name) for name in CODE))
        if isinstance(thing, partial):
            return self._all("partial", (thing.func, thing.args, sorted(thing.keywords.items())))
        if isinstance(thing, MethodType):
            return _sum(b"method", self.digest(thing.__func__), self._object(thing.__self__))
        if isinstance(thing, NAMED):
            where = getattr(thing, "__module__", None)
            name = _text((where, getattr(thing, "__qualname__", thing.__name__)))
            # A method of a builtin is bound to a value, a function to its module.
            return _sum(b"named", name, self.digest(getattr(thing, "__self__", None)))
        if isinstance(thing, FunctionType):
            return self._written(thing)
        return self._object(thing) if callable(thing) else None

    def _object(self, thing: Any) -> bytes:  # noqa: ANN401
        """An object by its kind, the code of all its methods, and what it holds."""
        if isinstance(thing, NAMED):
            return self.digest(thing)
        if not self.strict:
            return _text(type(thing))
        if not hasattr(thing, "__dict__"):
            raise _unnameable(thing)
        kinds = [vars(kind) for kind in type(thing).__mro__]
        methods = (kind[name] for kind in kinds for name in sorted(kind))
        code = [self.digest(method) for method in methods if isinstance(method, FunctionType)]
        return _sum(_text(type(thing)), *code, self.digest(vars(thing)))

    def _written(self, function: FunctionType) -> bytes:
        """A function written in Python."""
        if id(function) not in self.met:
            self.met[id(function)] = function, b"number %d" % len(self.met)
            parts = (function.__code__, function.__defaults__, function.__kwdefaults__)
            pieces = [*map(self.digest, (*parts, *_held(function))), *self._module(function)]
            self.met[id(function)] = function, _sum(*pieces)
        return self.met[id(function)][1]

    def _module(self, function: FunctionType) -> Iterator[bytes]:
        """What a function reads from its module: values, and functions that stand there too."""
        for name in sorted(_names(function.__code__) & function.__globals__.keys()):
            thing = function.__globals__[name]
            yield name.encode()
            if isinstance(thing, FunctionType) and thing.__module__ != function.__module__:
                yield _text((thing.__module__, thing.__qualname__))
                continue
            try:
                yield self.digest(thing)
            except (UnnameableError, RecursionError):
                yield _text(type(thing))

    def _saved(self, thing: Any) -> bytes | None:  # noqa: ANN401
        if not (hasattr(thing, "save") and hasattr(thing, "absorb")):
            return None
        with tempfile.TemporaryDirectory() as passing:
            path = Path(passing) / "blank"
            thing.save(path)
            return _sum(_text(type(thing)), path.read_bytes())


def _held(function: FunctionType) -> list[Any]:
    """What a function closes over, less what it has not got yet."""
    held = []
    for cell in function.__closure__ or ():
        with suppress(ValueError):
            held.append(cell.cell_contents)
    return held


def _names(code: CodeType) -> set[str]:
    """Names that code looks up in its module, inner functions included."""
    loads = ("LOAD_GLOBAL", "LOAD_NAME")
    found = {step.argval for step in dis.get_instructions(code) if step.opname in loads}
    inner = (const for const in code.co_consts if isinstance(const, CodeType))
    return found.union(*map(_names, inner))
