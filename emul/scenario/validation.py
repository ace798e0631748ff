"""A document against its models: the sections that are sound, and pydantic's errors in the words of this project."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Union

from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from emul.base.plain import PlainDict, PlainMapping
from emul.scenario.models import Document
from emul.scenario.wording import MISSING, Finding, Path, nearest, shown

_KINDS = {"model_type": "expected a mapping", "dict_type": "expected a mapping", "list_type": "expected a list"}


def validated(tree: PlainMapping) -> tuple[PlainDict, list[Finding]]:
    """(the validated values of the top-level keys that are sound, what is wrong with the others)."""
    try:
        document = Document.model_validate(tree)
        return {key: getattr(document, key) for key in Document.model_fields}, []
    except ValidationError as error:
        broken = {key for key in Document.model_fields if key not in tree}
        found: list[Finding] = []
        for item in error.errors(include_url=False):
            broken.add(str(item["loc"][0]) if item["loc"] else "")
            found += _findings_of(item)
    sections = {}
    for key, info in Document.model_fields.items():
        if key not in broken:
            sections[key] = _adapter(key).validate_python(tree[key])
        elif key not in tree and not info.is_required():
            sections[key] = info.get_default()
    return sections, found


@cache
def _adapter(key: str) -> TypeAdapter[object]:
    """Validates one top-level key alone."""
    info = Document.model_fields[key]
    kind: Any = Annotated[info.annotation, Field(), *info.metadata]
    return TypeAdapter(kind)


def _findings_of(item: ErrorDetails) -> Iterator[Finding]:
    """One error of pydantic as findings of ours."""
    path: Path = tuple(item["loc"])
    kind, value = item["type"], item["input"]
    if kind == "findings":
        for below, found, expected in item["ctx"]["findings"]:
            yield (*path, *below), found or shown(_value_at(value, below)), expected
    elif kind == "missing":
        yield path, MISSING, "is required"
    elif kind == "extra_forbidden":
        model = _model_at(path[:-1])
        yield path, shown(value), "unknown key" + (nearest(str(path[-1]), _keys(model)) if model else "")
    elif kind == "value_error":
        yield path, shown(value), str(item["ctx"]["error"])
    elif kind == "too_short":
        least = item["ctx"]["min_length"]
        yield path, shown(value), f"expected at least {'one entry' if least == 1 else f'{least} entries'}"
    else:
        yield path, shown(value), _KINDS.get(kind, item["msg"])


def _value_at(value: object, path: Path) -> object:
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _keys(model: type[BaseModel]) -> list[str]:
    return [info.alias or key for key, info in model.model_fields.items()]


def _model_at(path: Path) -> type[BaseModel] | None:
    """The model whose mapping stands at `path` of a document, to name its keys."""
    here: Any = Document
    for step in path:
        if isinstance(here, type) and issubclass(here, BaseModel):
            info = next((i for key, i in here.model_fields.items() if step in (key, i.alias)), None)
            here = _inner(info.annotation) if info else None
        else:       # list[X], dict[str, X]
            arguments = typing.get_args(here)
            here = _inner(arguments[-1]) if arguments else None
    return here if isinstance(here, type) and issubclass(here, BaseModel) else None


def _inner(annotation: object) -> object:
    """An annotation without Annotated and without "or None"."""
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return _inner(typing.get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return _inner(next(a for a in typing.get_args(annotation) if a is not type(None)))
    return annotation
