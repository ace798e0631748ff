"""A choice as a scenario writes it, a name or {name: {parameter: value}}, and the frozen dataclass that it stands for.

    choose("median", KINDS, "rule")         choose({"krum": {"f": 2}}, KINDS, "rule")
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias

import numpy as np

from emul.base.plain import PlainDict, PlainMapping
from emul.base.units import LARGEST

WrittenChoice: TypeAlias = str | PlainDict       # as a scenario writes it


def choose(written: str | PlainMapping, kinds: Mapping[str, type], what: str) -> tuple[str, Any]:
    """(name, instance of its dataclass). what: how such a choice is called in errors.

    Raises ValueError with everything that is wrong with it.
    """
    one = {written: {}} if isinstance(written, str) else written
    if not isinstance(one, Mapping) or len(one) != 1:
        raise ValueError(f"found {written!r}, expected the name of a {what}, or {{name: {{parameter: value}}}}")
    (name, values), = one.items()
    if name not in kinds:
        near = get_close_matches(str(name), kinds, 1)
        raise ValueError(f'unknown {what} "{name}"; ' + (f'did you mean "{near[0]}"?' if near else
                                                         f"expected one of {', '.join(kinds)}"))
    if not isinstance(values or {}, Mapping):
        raise ValueError(f"{name}: found {values!r}, expected {{parameter: value}}")
    return name, _built(name, kinds[name], values or {})


def _built(name: str, params: type, values: PlainMapping) -> object:
    hints = typing.get_type_hints(params)
    fields = {field.name: field for field in dataclasses.fields(params) if not field.name.startswith("_")}
    wrong = [f'{name}: unknown parameter "{key}", expected {", ".join(fields) or "none"}'
             for key in values if key not in fields]
    wrong += [f"{name}: {key} is missing" for key, field in fields.items()
              if key not in values and field.default is dataclasses.MISSING]
    wrong += [f"{name}: {key} = {value!r}: expected {_words(hints[key])}"
              for key, value in values.items() if key in fields and not _fits(value, hints[key])]
    if wrong:
        raise ValueError("; ".join(wrong))
    try:
        return params(**values)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _fits(value: object, annotation: object) -> bool:
    kinds = typing.get_args(annotation) if isinstance(annotation, types.UnionType) else (annotation,)
    if typing.get_origin(annotation) is Literal:
        return value in typing.get_args(annotation)
    if isinstance(value, bool):
        return bool in kinds
    if isinstance(value, int) and abs(value) > LARGEST:
        return False
    if isinstance(value, int) and float in kinds:
        return True
    if isinstance(value, float) and not np.isfinite(value):
        return False
    return isinstance(value, kinds)


def _words(annotation: object) -> str:
    if typing.get_origin(annotation) is Literal:
        return " or ".join(typing.get_args(annotation))
    kinds = typing.get_args(annotation) if isinstance(annotation, types.UnionType) else (annotation,)
    words = {int: "a whole number", float: "a number", bool: "true or false", type(None): "none"}
    return " or ".join(words[kind] for kind in kinds)
