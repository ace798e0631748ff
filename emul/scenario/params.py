"""A scheme's own parameters: its frozen dataclass `Params`, built from what the scenario says.

The scenario writes values with units where the dataclass has them in its names:

    deadline_s: float | None    deadline: 30 s, or deadline: none
    window_ns: int              window: 20 ms
    root_bytes: int             root: 1 MB
    rate_bps: int               rate: 20 Mbit/s
    lambda_: float              lambda: 0.1

Everything else is written as it is called and must be of the annotated type.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Union

from emul.base.errors import Problem
from emul.base.plain import PlainMapping
from emul.base.units import LARGEST, bandwidth_bps, duration_ns, size_bytes
from emul.scenario.wording import Finding, nearest, place, scenario_error, shown

Convert = Callable[[Any], Any]      # raises ValueError that says what is expected


def build_params(cls: type, mapping: Mapping[str, object], name: str = "parameters") -> Any:
    """The instance of `cls` that `mapping` (without the scheme's name) describes.

    Raises ScenarioError, headed `name`, with everything that is wrong.
    """
    instance, found = check_params(cls, mapping)
    if found:
        raise scenario_error(name, [Problem(place(path), value, expected) for path, value, expected in found])
    return instance


def check_params(cls: type, mapping: PlainMapping,
                 beside: Sequence[str] = ()) -> tuple[object | None, list[Finding]]:
    """The instance, or None and all that is wrong: (path below the mapping, found, expected).

    beside: keys that may stand where the parameters do, of something else.
    """
    hints = typing.get_type_hints(cls, include_extras=True)
    keys = scenario_keys(cls)
    found: list[Finding] = [((key,), shown(value), "unknown parameter" + nearest(key, [*keys, *beside]))
                            for key, value in mapping.items() if key not in keys]
    values = {}
    for key, field in keys.items():
        if key not in mapping:
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
                found.append(((key,), "missing", f"expected {_describe(_unit_of(field, hints)[0], hints[field.name])}"))
            continue
        try:
            values[field.name] = _convert(hints[field.name], mapping[key], _unit_of(field, hints)[1])
        except ValueError as error:
            found.append(((key,), shown(mapping[key]), str(error)))
    if found:
        return None, found
    try:
        return cls(**values), []
    except (ValueError, TypeError) as error:    # the dataclass's own __post_init__
        return None, [((), "", str(error))]


def scenario_keys(cls: type) -> dict[str, dataclasses.Field[Any]]:
    """Scenario key -> field of `cls`, in the order of the fields.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Params:
    ...     deadline_s: float | None = None
    ...     lambda_: float = 0.1
    >>> list(scenario_keys(Params))
    ['deadline', 'lambda']
    """
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = [f for f in dataclasses.fields(cls) if f.init]
    names = {f.name for f in fields}
    keys = {}
    for field in fields:
        suffix = _unit_of(field, hints)[0]
        key = field.name.removesuffix(suffix) if suffix else field.name.rstrip("_")
        keys[field.name if key in names and key != field.name else key] = field
    return keys


_UNITS: dict[str, tuple[type, Convert, str]] = {
    "_s": (float, lambda v: duration_ns(v) / 1e9, "a duration such as 20 ms or 1 h"),
    "_ns": (int, duration_ns, "a duration such as 20 ms or 1 h"),
    "_bytes": (int, size_bytes, "a size such as 1 MB or 64 KiB"),
    "_bps": (int, bandwidth_bps, "a bandwidth such as 20 Mbit/s or 2 MB/s"),
}


def _unit_of(field: dataclasses.Field[object], hints: dict[str, object]) -> tuple[str, Convert | None]:
    """The unit's suffix in the field's name and its parser; "" where there is none: by name *and* by type."""
    for suffix, (kind, parse, _) in _UNITS.items():
        if field.name.endswith(suffix) and field.name != suffix and kind in _members(hints[field.name]):
            return suffix, parse
    return "", None


def _members(annotation: object) -> tuple[object, ...]:
    """The alternatives of a union, one for anything else; Annotated is looked through."""
    if typing.get_origin(annotation) is Annotated:
        annotation = typing.get_args(annotation)[0]
    return typing.get_args(annotation) if typing.get_origin(annotation) in (Union, types.UnionType) else (annotation,)


def _describe(suffix: str, annotation: object) -> str:
    """The values that a field accepts, in words."""
    return " or ".join(_words(m, suffix) for m in _members(annotation))


def _words(kind: object, suffix: str = "") -> str:
    if kind is type(None):
        return "none"
    if suffix:
        return _UNITS[suffix][2]
    plain = {bool: "true or false", int: "a whole number", float: "a number", str: "text", Any: "a value"}
    if kind in plain:
        return plain[kind]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return "one of " + ", ".join(str(a) for a in arguments)
    if origin is tuple and arguments and arguments[-1] is not Ellipsis:
        return f"a list of {len(arguments)} values"
    if origin in (list, tuple) and arguments:
        return f"a list, each {_describe('', arguments[0])}"
    if origin in (dict, Mapping):
        return f"a mapping, each value {_describe('', arguments[1])}"
    return getattr(kind, "__name__", str(kind))


def _convert(annotation: object, value: object, parse: Convert | None = None) -> object:
    members = _members(annotation)
    if type(None) in members and (value is None or value == "none"):
        return None
    members = tuple(m for m in members if m is not type(None))
    if parse is not None:
        return parse(value)
    if len(members) == 1:
        return _as(members[0], value, annotation)
    for member in members:
        try:
            return _as(member, value, annotation)
        except ValueError:
            continue
    raise ValueError(f"expected {_describe('', annotation)}")


def _as(kind: Any, value: Any, annotation: Any) -> object:
    """`value` as one `kind` of the `annotation`. Raises ValueError; TypeError for a kind that no scenario can hold."""
    expected = f"expected {_describe('', annotation)}"
    if kind is Any:
        return value
    if kind is bool or kind is str:
        return _checked(value, isinstance(value, kind), expected)
    if kind is int:
        whole = isinstance(value, int) and not isinstance(value, bool)
        return _checked(value, whole and abs(value) <= LARGEST, expected)
    if kind is float:
        sound = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300
        return float(_checked(value, sound and not math.isnan(value), expected))
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return _literal(arguments, value, expected)
    if origin in (list, tuple):
        _checked(value, isinstance(value, list), expected)
        return _sequence(origin, arguments, value, expected)
    if origin in (dict, Mapping):
        _checked(value, isinstance(value, dict), expected)
        return {key: _convert(arguments[1], item) for key, item in value.items()}
    raise TypeError(f"a scheme's parameter cannot be of type {kind}: no scenario can hold it")


def _checked(value: object, sound: bool, expected: str) -> Any:
    if not sound:
        raise ValueError(expected)
    return value


def _literal(words: tuple[Any, ...], value: object, expected: str) -> object:
    for word in words:
        if word == value and type(word) is type(value):
            return word
    near = nearest(value, words) if isinstance(value, str) else ""
    raise ValueError(f"unknown value{near}" if near.startswith("; did") else expected)


def _sequence(origin: type, arguments: tuple[Any, ...], value: list[Any], expected: str) -> object:
    if origin is tuple and arguments[-1] is not Ellipsis:
        _checked(value, len(value) == len(arguments), expected)
        return tuple(_convert(kind, item) for kind, item in zip(arguments, value, strict=True))
    return origin(_convert(arguments[0], item) for item in value)
