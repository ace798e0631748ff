"""From a file to a checked scenario: read, edit, validate, convert, then check what only the other layers know."""

from __future__ import annotations

import os
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Union

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from emul.scenario import scenario as plain
from emul.scenario.attacks import attack_values
from emul.scenario.checks import check_world
from emul.scenario.compose import extended, overlaid, text_of
from emul.scenario.devices import devices_value
from emul.scenario.edits import apply_set, normalise, override
from emul.scenario.faults import NodeSpeed, fault_values
from emul.scenario.limits import Limits
from emul.scenario.links import link_rules
from emul.scenario.models import Document
from emul.scenario.network import network_value
from emul.scenario.record import record_value
from emul.scenario.scenario import Scenario
from emul.scenario.sections import MISSING, absolute
from emul.scenario.source import Path as Place
from emul.scenario.source import Source, of_values, read, scenario_error, shown
from emul.scenario.sweep import sweep_values
from emul.scenario.topology import topology_spec
from emul.scenario.values import nearest

Given = str | os.PathLike[str] | Mapping[str, Any] | Scenario       # what a scenario can be had from


Edit = str | Path                               # "stop.rounds=5", or a file to be put on top


def load(given: Given, sets: Sequence[Edit] = (), seed: int | None = None, *,
         check: bool = True, plugins: Sequence[str] = ()) -> Scenario:
    """The scenario in a file, a mapping or a scenario, with the changes `sets` and `seed` applied, in this order: texts
    ("stop.rounds=5"), and paths of files that are put on top.

    Files that it names are looked for beside it; those of a mapping here. check=False leaves out what needs the
    network, the task and the schemes: only the format is checked. plugins: modules that are schemes of the user
    ("package.module"). Raises ScenarioError with everything that is wrong.
    """
    name, checked = named(given), plugins if check else None
    if isinstance(given, Scenario):
        source, file = of_values(given.document()), given.path or Path.cwd() / "scenario"
        return replace(_load(source, name, file, sets, seed, checked), sweep=given.sweep)
    if isinstance(given, Mapping):
        return _load(of_values(given), name, Path.cwd() / "scenario", sets, seed, checked)
    return _load(read(text_of(Path(given), name)), name, Path(given).absolute(), sets, seed, checked)


def named(given: Given) -> str:
    """What errors call it: the file, or the scenario's own name."""
    if isinstance(given, Scenario):
        return str(given.path or given.name)
    return str(given.get("name", "scenario")) if isinstance(given, Mapping) else str(given)


def loads(text: str, name: str = "scenario", sets: Sequence[Edit] = (), seed: int | None = None, *,
          base: Path | None = None, check: bool = True, plugins: Sequence[str] = ()) -> Scenario:
    """As `load`, from text; `name` heads error messages, files are looked for in `base` (default: here)."""
    file = (base or Path.cwd()).absolute() / "scenario"
    return _load(read(text), name, file, sets, seed, plugins if check else None)


def _load(source: Source, name: str, path: Path, sets: Sequence[Edit], seed: int | None,
          plugins: Sequence[str] | None) -> Scenario:
    if not source.problems and not isinstance(source.tree, dict):
        source.problem((), shown(source.tree), "expected a mapping with the keys emul, name, seed, topology, ...")
    if source.problems:
        raise scenario_error(name, source.problems)
    source = extended(source, name, path.parent, (path,))
    for edit in sets:
        if isinstance(edit, Path):
            source = overlaid(source, edit)
        else:
            apply_set(source, edit)
            normalise(source)           # what this one wrote in short, the next one may reach into
    if seed is not None:
        source.tree["seed"] = seed
        override(source, ("seed",), "--seed")
    sections = _sections(source)
    parts = _convert(sections, path.parent)
    warnings = [] if plugins is None else check_world(parts, source, plugins)
    if source.problems:
        raise scenario_error(name, source.problems)
    return Scenario(**_with_lines(parts, source), path=path, warnings=warnings)


# ---- validation ----

def _sections(source: Source) -> dict[str, Any]:
    """The validated values of the top-level keys that are sound; problems of the others are added to `source`."""
    try:
        document = Document.model_validate(source.tree)
        return {key: getattr(document, key) for key in Document.model_fields}
    except ValidationError as error:
        broken = {key for key in Document.model_fields if key not in source.tree}
        for item in error.errors(include_url=False):
            broken.add(str(item["loc"][0]) if item["loc"] else "")
            _add(source, item)
    sections = {}
    for key, info in Document.model_fields.items():
        if key not in broken:
            sections[key] = _adapter(key).validate_python(source.tree[key])
        elif key not in source.tree and not info.is_required():
            sections[key] = info.get_default()
    return sections


@cache
def _adapter(key: str) -> TypeAdapter[Any]:
    """Validates one top-level key alone."""
    info = Document.model_fields[key]
    kind: Any = Annotated[info.annotation, Field(), *info.metadata]
    return TypeAdapter(kind)


_KINDS = {"model_type": "expected a mapping", "dict_type": "expected a mapping", "list_type": "expected a list",
          "too_short": "expected at least one entry"}


def _add(source: Source, item: Any) -> None:
    """One error of pydantic as problems of ours."""
    path: Place = tuple(item["loc"])
    kind, value = item["type"], item["input"]
    if kind == "findings":
        for below, found, expected in item["ctx"]["findings"]:
            source.problem((*path, *below), found or shown(_value_at(value, below)), expected)
    elif kind == "missing":
        source.problem(path, MISSING, "is required")
    elif kind == "extra_forbidden":
        model = _model_at(path[:-1])
        source.problem(path, shown(value), "unknown key" + (nearest(str(path[-1]), _keys(model)) if model else ""))
    elif kind == "value_error":
        source.problem(path, shown(value), str(item["ctx"]["error"]))
    else:
        source.problem(path, shown(value), _KINDS.get(kind, item["msg"]))


def _value_at(value: Any, path: Place) -> Any:
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _keys(model: type[BaseModel]) -> list[str]:
    return [info.alias or key for key, info in model.model_fields.items()]


def _model_at(path: Place) -> type[BaseModel] | None:
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


def _inner(annotation: Any) -> Any:
    """An annotation without Annotated and without "or None"."""
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return _inner(typing.get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return _inner(next(a for a in typing.get_args(annotation) if a is not type(None)))
    return annotation


# ---- conversion ----

def _convert(sections: dict[str, Any], base: Path) -> dict[str, Any]:
    """The fields of Scenario that the sound sections give."""
    parts: dict[str, Any] = {}
    for key, (field, convert) in _CONVERSIONS.items():
        if key in sections:
            parts[field] = convert(sections[key], base)
    return parts


def _task(task: dict[str, Any], base: Path) -> dict[str, Any]:
    data = task["data"]
    directory = data.get("directory") if isinstance(data, dict) else None
    if not isinstance(directory, str) or directory.startswith("~"):
        return task
    return task | {"data": data | {"directory": str(absolute(directory, base))}}


_CONVERSIONS: dict[str, tuple[str, Any]] = {
    "name": ("name", lambda name, base: name),
    "seed": ("seed", lambda seed, base: seed),
    "topology": ("topology", topology_spec),
    "links": ("link_rules", link_rules),
    "nodes": ("node_speeds", lambda rules, base: [NodeSpeed(r.match, r.speed, r.fraction) for r in rules]),
    "faults": ("faults", fault_values),
    "task": ("task", _task),
    "training": ("training", lambda training, base: training),
    "attacks": ("attacks", attack_values),
    "compute": ("compute", lambda c, base: plain.Compute(c.mode or "zero", absolute(c.file, base), c.device,
                                                               absolute(c.trace, base), c.take or "drawn")),
    "devices": ("devices", devices_value),
    "fuse": ("fuse", lambda f, base: None if f is None else plain.Fuse(f.clients, f.lanes)),
    "schemes": ("schemes", lambda entries, base: [(e["name"], {k: v for k, v in e.items() if k != "name"})
                                                  for e in entries]),
    "stop": ("stop", lambda s, base: plain.Stop(s.rounds, s.accuracy, s.virtual_time)),
    "evaluation": ("evaluation", lambda e, base: plain.Evaluation(e.every, e.scope)),
    "workers": ("workers", lambda w, base: plain.Workers(w.timeout / 1e9)),
    "sweep": ("sweep", sweep_values),
    "network": ("network", network_value),
    "limits": ("limits", lambda rule, base: Limits(rule.max_message, rule.max_unread)),
    "record": ("record", lambda rule, base: record_value(rule)),
}


def _with_lines(parts: dict[str, Any], source: Source) -> dict[str, Any]:
    """Rules and topology know their lines, for what is found out about them later."""
    rules = [replace(rule, line=source.lines.get(("links", i))) for i, rule in enumerate(parts["link_rules"])]
    return parts | {"link_rules": rules, "topology": replace(parts["topology"], line=source.lines.get(("topology",)))}
