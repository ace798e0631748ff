"""Verdicts on messages: a message is checked against its annotations when it is encoded, and the verdict travels with
it.

Types, number and kinds of fields, dtype and number of dimensions of arrays, and that numbers are finite; the shape is
for the receiver's `accept` (`emul.protocols.demands`). A receiver
would find the same; but a verdict made by the sender's worker costs no decoding at each receiver, and is made before
anything of the protocol runs. Where a message is sound it costs about a microsecond: most fields are numbers, text or
one array, which are looked at directly. Everything else is decoded as a receiver would decode it.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any, NamedTuple

import numpy as np

from emul.base.errors import WireError
from emul.message.wire import Declared, Encoded, Holds, Message, decode

Check = Callable[[Any], str]        # "" or what is wrong with a value

_ANY = Holds()
_PLAIN = (bool, int, str, bytes)


class Verdict(NamedTuple):
    """The reason why a message is refused. diverged: only because a number in it is not finite."""

    reason: str
    diverged: bool = False


NOT_FINITE = "not finite"


def judge(message: Message, encoded: Encoded, types: Mapping[str, type[Message]] | None = None) -> Verdict | None:
    """The mistake in a message, whose frames are `encoded`; None: nothing.

    types: name -> class of every message that its receivers know; None: this one.
    """
    cls = type(message)
    known = cls if types is None else types.get(cls.__name__)
    if known is None:
        return Verdict(f"unknown message type {cls.__name__[:80]!r}")
    if known is cls:
        for name, glance in _glances(cls):
            if glance is None or not glance(getattr(message, name)):
                break
        else:
            return None
    return _closely(encoded, known)


def _closely(encoded: Encoded, known: type[Message]) -> Verdict | None:
    try:
        message = decode(encoded, {known.__name__: known})
    except WireError as e:
        return Verdict(str(e).removeprefix(f"{known.__name__}.").removeprefix(f"{known.__name__} "))
    for name, check in _checks_of(known):
        wrong = check(getattr(message, name))
        if wrong:
            return Verdict(f"{name}: {wrong}", wrong == NOT_FINITE)
    return None


# --- at a glance: is this field surely sound? ------------------------------------------------------------------------

Glance = Callable[[Any], bool]
_glances_of: dict[type[Message], list[tuple[str, Glance | None]]] = {}


def _glances(cls: type[Message]) -> list[tuple[str, Glance | None]]:
    """(field, test); None: it has to be looked at closely."""
    found = _glances_of.get(cls)
    if found is None:
        found = _glances_of[cls] = [(name, _glance(kind)) for name, kind in _annotations(cls)]
    return found


def _glance(kind: object) -> Glance | None:
    kind, holds = _held(kind)
    if kind in _PLAIN or kind is Declared:
        return lambda value: type(value) is kind
    if kind is float:
        if not holds.finite:
            return lambda value: type(value) is float
        return lambda value: type(value) is float and math.isfinite(value)
    if kind is np.ndarray:
        check = _array_check(holds)
        return lambda value: type(value) is np.ndarray and not check(value)
    return None


# --- closely: what is wrong in here? --------------------------------------------------------------------------------

_checks: dict[type, list[tuple[str, Check]]] = {}


def _checks_of(cls: type) -> list[tuple[str, Check]]:
    """(field, check) of those fields of a dataclass in which a decoded value may still be wrong."""
    found = _checks.get(cls)
    if found is None:
        found = _checks[cls] = []               # there already if an annotation refers to its own class
        for name, kind in _annotations(cls):
            check = _check(kind)
            if check is not None:
                found.append((name, check))
    return found


def _check(kind: Any) -> Check | None:
    """Of a decoded value, whose Python types are right; None: there is nothing more to look at."""
    kind, holds = _held(kind)
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if kind is float:
        return (lambda value: "" if type(value) is not float or math.isfinite(value) else NOT_FINITE) \
            if holds.finite else None
    if (origin or kind) is np.ndarray:
        check = _array_check(holds)
        return lambda value: check(value) if isinstance(value, np.ndarray) else ""
    if origin in (typing.Union, UnionType):
        return _all([_check(arg) for arg in args])
    if origin in (list, tuple):
        return _items([_check(arg) for arg in args if arg is not Ellipsis], (list, tuple), iter)
    if origin is dict:
        return _items([_check(args[1])], (dict,), lambda found: iter(found.values()))
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _nested(kind)
    return None


def _all(checks: list[Check | None]) -> Check | None:
    """One of several types: each check looks at values of its own type only."""
    some = [check for check in checks if check is not None]
    return (lambda value: next((wrong for check in some if (wrong := check(value))), "")) if some else None


def _items(checks: list[Check | None], kinds: tuple[type, ...], each: Callable[[Any], Any]) -> Check | None:
    check = _all(checks)
    if check is None:
        return None
    return lambda value: next((wrong for item in each(value) if (wrong := check(item))), "") \
        if isinstance(value, kinds) else ""


def _nested(cls: type) -> Check:
    def check(value: Any) -> str:
        if not isinstance(value, cls):
            return ""
        return next((f"{name}: {wrong}" if wrong != NOT_FINITE else wrong for name, check in _checks_of(cls)
                     if (wrong := check(getattr(value, name)))), "")
    return check


def _array_check(holds: Holds) -> Check:
    dtype = None if holds.dtype is None else np.dtype(holds.dtype)
    ndim, finite = holds.ndim, holds.finite

    def check(array: np.ndarray) -> str:
        if dtype is not None and array.dtype != dtype:
            return f"{array.dtype}, expected {dtype}"
        if ndim is not None and array.ndim != ndim:
            return f"{array.ndim} dimensions, expected {ndim}"
        if finite and array.dtype.kind in "fc" and not np.isfinite(array).all():
            return NOT_FINITE
        return ""
    return check


def _held(kind: Any) -> tuple[Any, Holds]:
    """An annotation apart: the type, and what its `Holds` says."""
    if typing.get_origin(kind) is not typing.Annotated:
        return kind, _ANY
    return kind.__origin__, next((part for part in kind.__metadata__ if isinstance(part, Holds)), _ANY)


def _annotations(cls: type) -> list[tuple[str, object]]:
    hints = typing.get_type_hints(cls, include_extras=True)
    return [(f.name, hints[f.name]) for f in dataclasses.fields(cls)]
