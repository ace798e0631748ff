"""Results that cannot be repeated: those of `compute(..., volatile=True)`, on disk as they come, and read back.

    file      `emul.base.entries`, one a worker: `volatile-<worker>` in the run directory; of a run that was gone on
              with also `volatile-<worker>.<n>`
    entry     the frames of a `VolatileResult`

A result is on disk before the node goes on with it, so a run that is killed has all that its journal depends on. The
role gets what was encoded, decoded: arrays as those of a message, so that a run that takes its results from the file
goes on bit by bit as the one that wrote it.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from emul.base import errors
from emul.base.entries import EntryError, append, entries
from emul.base.errors import EmulError, NotRecorded, ProtocolFailure, RoleError, WireError
from emul.base.files import strerror
from emul.message.wire import Message, decode, encode, from_frames
from emul.roles import Scheme

_LEAVES = (type(None), bool, int, float, str, bytes)
_LIST, _TUPLE, _DICT, _SCALAR, _DATA, _FAILURE = range(6)      # the kinds of a list in an encoded tree

Key = tuple[int, int]               # (node, which of its computations, from 0)
Types = Mapping[str, type]          # dataclasses and failures that a result may hold, by name


class VolatileError(EmulError):
    """A file of volatile results is not what emul wrote; the text names the file and the byte."""


@dataclass(frozen=True)
class VolatileResult(Message):
    """One result: of which computation, and its value as a tree of what a header can hold."""

    node: int
    number: int
    label: str
    tree: Any


class Volatile:
    """The volatile results of one worker's nodes: written to `path` (None: nowhere), or taken from `recalled`."""

    # CKKS libraries draw randomness of their own and offer no way to seed it. Each worker writes such results before
    # the node goes on, since through the coordinator they would travel like payloads. They are handed out as decoded: a
    # run that reads them meets the same addresses, and a role cannot change what is kept
    # (`test_a_run_that_takes_its_volatile_results_from_another_is_the_other`).

    def __init__(self, scheme: Scheme[object], path: Path | None, recalled: Mapping[Key, object]):
        self._types = types_of(scheme)
        self._recalled = recalled
        self._path = path
        self._file = None if path is None else path.open("xb", buffering=0)

    def recalls(self, key: Key) -> bool:
        """True if the result of that computation is there from before."""
        return key in self._recalled

    def recall(self, key: Key) -> tuple[object, BaseException | None]:
        """(value, failure) of a computation that has been done before."""
        return _value(self._recalled[key], self._types)

    def settle(self, key: Key, label: str, value: object, failure: BaseException | None,
               ) -> tuple[object, BaseException | None]:
        """The result that the role gets for (value, failure): the same, once it is in the file; RoleError or
        NotRecorded if it cannot be."""
        if failure is not None and not isinstance(failure, ProtocolFailure):
            return value, failure                       # it ends the run, or the scheme takes it for what it is
        try:
            tree = _tree(value, self._types) if failure is None else _failure(failure, self._types)
            frames = encode(VolatileResult(*key, label, tree)).frames()
            if self._file is not None:
                append(self._file, frames)
            result = decode(from_frames(frames), {"VolatileResult": VolatileResult})
        except (TypeError, WireError) as e:
            return None, RoleError(f"compute({label!r}, volatile=True) gave what cannot be kept: {e}")
        except OSError as e:
            return None, NotRecorded(f"{self._path}: {strerror(e)}")
        assert isinstance(result, VolatileResult)
        return _value(result.tree, self._types)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def types_of(scheme: Scheme[object]) -> dict[str, type]:
    """Name -> type of the dataclasses and failures that a scheme's `results` lists, and of emul's own failures."""
    ours = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ProtocolFailure)]
    return {kind.__name__: kind for kind in [*ours, *scheme.results]}


def file_of(directory: str, worker: int) -> Path | None:
    """A new one: a run that was killed and is gone on with has those of before beside it. None: nothing is written."""
    if not directory:
        return None
    names = itertools.chain([f"volatile-{worker}"], (f"volatile-{worker}.{n}" for n in itertools.count(1)))
    return next(path for name in names if not (path := Path(directory) / name).exists())


def read(directory: Path) -> dict[Key, Any]:
    """The encoded trees of all results in a run directory, whoever wrote them. A last entry that was cut short is left
    out. Raises VolatileError for what is damaged."""
    found: dict[Key, object] = {}
    for path in sorted(directory.glob("volatile-*")):
        for result in _results(path):
            found[result.node, result.number] = result.tree
    return found


def _results(path: Path) -> Iterator[VolatileResult]:
    try:
        for at, frames in entries(path):
            try:
                found = decode(from_frames(frames), {"VolatileResult": VolatileResult})
            except (WireError, ValueError) as e:
                raise VolatileError(f"{path}, byte {at}: no result: {e}") from None
            assert isinstance(found, VolatileResult)
            yield found
    except EntryError as e:
        raise VolatileError(str(e)) from None


# --- values as trees ------------------------------------------------------------------------------------------------

def _tree(value: Any, types: Types) -> object:
    """A value with its containers as lists that say what they are. Raises TypeError."""
    if type(value) in _LEAVES or isinstance(value, np.ndarray) or type(value).__name__ == "Tensor":
        return value
    if isinstance(value, np.generic):
        return [_SCALAR, np.array(value)]
    if type(value) in (list, tuple):
        return [_LIST if type(value) is list else _TUPLE, *(_tree(v, types) for v in value)]
    if type(value) is dict:
        return [_DICT, *(_tree(x, types) for item in value.items() for x in item)]
    if dataclasses.is_dataclass(value) and types.get(type(value).__name__) is type(value):
        fields = (getattr(value, f.name) for f in dataclasses.fields(value) if f.init)
        return [_DATA, type(value).__name__, *(_tree(v, types) for v in fields)]
    raise TypeError(f"{type(value).__name__}: expected numbers, text, bytes, arrays, lists, tuples, dictionaries, or "
                    "dataclasses that the scheme's `results` lists")


def _failure(failure: ProtocolFailure, types: Types) -> object:
    name = type(failure).__name__
    if types.get(name) is not type(failure):
        raise TypeError(f"the failure {name}: expected one that the scheme's `results` lists")
    return [_FAILURE, name, str(failure)]


def _value(tree: object, types: Types) -> tuple[object, BaseException | None]:
    if isinstance(tree, list) and tree[0] == _FAILURE:
        return None, types[tree[1]](tree[2])
    return _plain(tree, types), None


def _plain(tree: object, types: Types) -> Any:
    if not isinstance(tree, list):
        return tree
    kind, *items = tree
    if kind == _SCALAR:
        return items[0][()]
    if kind == _DATA:
        return types[items[0]](*(_plain(v, types) for v in items[1:]))
    values = [_plain(v, types) for v in items]
    if kind == _DICT:
        return dict(zip(values[::2], values[1::2], strict=True))
    return values if kind == _LIST else tuple(values)
