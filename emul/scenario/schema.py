"""The JSON schema of scenario files, for editors: keys, words and descriptions as one types.

It is made of the models that check a file, of every scheme's `Params`, and of the tables of docs/scenario.md, whose
texts are the descriptions. An editor is to help and not to refuse: a file that it accepts may still be wrong, and what
depends on several keys is left to `emul check`.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import re
import textwrap
import tokenize
import types
import typing
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal, Union

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode

from emul import attacks, schemes
from emul.base.errors import EmulError
from emul.base.shipped import shipped
from emul.learning import data, models, objectives, partition, solver
from emul.scenario.compose import EXTENDS
from emul.scenario.labels import COMPRESS, LABEL, PLACES
from emul.scenario.models import TASK_KEYS, Document
from emul.scenario.params import scenario_keys

Schema = dict[str, Any]

# heading of docs/scenario.md -> the models whose keys it explains
SECTIONS = {
    "Top level": ["Document"], "topology": ["Topology"], "roles of a topology": ["Role"],
    "latency by distance": ["LatencyByDistance"], "capacity": ["CapacityRule"], "access": ["AccessLink"],
    "links": ["Link"], "outage": ["Outage"], "latency": ["Latency"], "overhead": ["Overhead"],
    "transport": ["Transport"], "switching": ["Packetized"], "nodes": ["NodeRule"],
    "devices": ["DevicesRule"], "who has which": ["DeviceNodes"],
    "faults": ["FaultRule"], "set": ["LinkValues"], "churn": ["ChurnRule"], "availability": ["AvailabilityRule"],
    "laws of durations": ["LawRule", "WeibullLaw", "LogNormalLaw"], "diurnal": ["DiurnalRule"],
    "group": ["GroupRule"], "bandwidth": ["BandwidthTrace"], "attacks": ["AttackRule", "AttackedShare"],
    "compute": ["Compute"], "fuse": ["Fuse"], "stop": ["Stop"], "evaluation": ["Evaluation"],
    "workers": ["Workers"], "network": ["NetworkRule"], "sweep": ["SweepRule"], "limits": ["LimitsRule"],
    "record": ["RecordRule"]}
_NULL = {"type": "null"}
_TEXT_OR_NUMBER = ["string", "integer"]


def schema(plugins: Sequence[str] = ()) -> Schema:
    """The schema, of JSON Schema draft 2020-12. plugins: modules whose schemes and parts of tasks it names, too."""
    found = Document.model_json_schema(by_alias=True, schema_generator=_Generator, mode="validation")
    _described(found, "Document")
    for name, section in found["$defs"].items():
        _described(section, name)
        section.pop("required", None)           # may stand in the file that this one extends
    properties = found["properties"]
    for section in properties.values():         # what a file on top of another takes away
        if section.get("type") == "array" and "default" in section:
            section["type"] = ["array", "null"]
    properties["schemes"] |= {"type": "array", "minItems": 1, "items": _scheme(plugins)}
    properties["task"] |= _task(plugins)
    properties[EXTENDS] = {"type": "string", "description": "A scenario file that this one is put on top of."}
    _attacks(found["$defs"]["AttackRule"]["properties"], plugins)
    required = found.pop("required")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Scenario of emul",
            "description": "An experiment: network, learning task, schemes. docs/scenario.md explains every key.",
            **{key: found[key] for key in ("type", "properties", "additionalProperties", "$defs")},
            "if": {"not": {"required": [EXTENDS]}}, "then": {"required": required}}


class _Generator(GenerateJsonSchema):
    """Without titles made of names, and with null wherever a key may be taken away."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def generate(self, schema: Any, mode: JsonSchemaMode = "validation") -> Schema:
        found = super().generate(schema, mode)
        for section in (found, *found.get("$defs", {}).values()):
            section.pop("title", None)
            section.pop("description", None)    # docstrings of the models are for their readers
        return found


# ---- descriptions ----

def _described(section: Schema, model: str) -> None:
    """Add what the reference says of the keys of a model."""
    said = next((_reference().get(heading, {}) for heading, names in SECTIONS.items() if model in names), {})
    for key, value in section.get("properties", {}).items():
        if key in said:
            value["description"] = said[key]


@cache
def _reference() -> dict[str, dict[str, str]]:
    """Heading -> key -> its description, of the tables of docs/scenario.md. Empty where the page is not there."""
    try:
        page = shipped("scenario.md").read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    bare = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    parts = re.split(r"^#{1,3} (.+)$", bare, flags=re.MULTILINE)
    return {heading: _cells(text) for heading, text in zip(parts[1::2], parts[2::2], strict=True)}


def _cells(section: str) -> dict[str, str]:
    """The first column of its tables -> the last; what stands between them is said first."""
    found: dict[str, str] = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] if line.startswith("|") else []
        for key in re.findall(r"`([^`]+)`", cells[0]) if len(cells) > 1 else []:
            between = f"[{', '.join(cells[1:-1])}] " if len(cells) > 2 and any(cells[1:-1]) else ""
            found.setdefault(key, re.sub(r"[`*]|\]\([^)]*\)|\[(?=[^\]]*\]\()", "", between + cells[-1]))
    return found


# ---- schemes ----

def _scheme(plugins: Sequence[str]) -> Schema:
    """An entry of `schemes`: a name, or a mapping with the parameters of the scheme that it names."""
    cases, names = [], []
    for name in schemes.known(plugins):
        with contextlib.suppress(EmulError):
            module = schemes.find(name, plugins)
            names.append(name)
            cases.append({"if": {"properties": {"name": {"const": name}}, "required": ["name"]},
                          "then": {"properties": _of_entry(module), "additionalProperties": False}})
    known = {"anyOf": [{"enum": names}, {"type": "string"}], "description": "The scheme: its name."}
    entry = {"type": "object", "required": ["name"], "properties": {"name": known}, "allOf": cases}
    return {"anyOf": [{"enum": names}, {"type": "string"}, entry]}


def _of_entry(module: types.ModuleType) -> Schema:
    head = (module.__doc__ or "").strip().splitlines()
    codes = {COMPRESS: {"type": ["string", "object"], "description": "A codec of updates, or {up: codec, down: codec}"}}
    return {"name": {"type": "string", "description": head[0] if head else ""},
            LABEL: {"type": "string", "description": "What tables and figures call this entry."},
            PLACES: {"type": "object", "description": "Role of the scheme -> node of the topology.",
                     "properties": {role: {} for role in module.ROLES}},
            **(codes if "PackedUpdate" in schemes.message_names(module) else {}), **parameters(module.Params)}


def parameters(cls: type) -> Schema:
    """Scenario key -> schema of every parameter of a dataclass, its comment being the description.

    >>> from emul.schemes.fedavg import Params
    >>> parameters(Params)["deadline"]["type"]
    ['string', 'integer', 'null']
    """
    hints = typing.get_type_hints(cls)
    said = _comments(cls)
    found = {}
    for key, field in scenario_keys(cls).items():
        one = _of_type(hints[field.name])
        if key != field.name and not field.name.endswith("_"):          # a quantity with its unit
            null = ["null"] if type(None) in typing.get_args(hints[field.name]) else []
            one = {"type": [*_TEXT_OR_NUMBER, *null]}
        if field.name in said:
            one["description"] = said[field.name]
        if isinstance(field.default, (str, int, float, bool, type(None))):
            one["default"] = field.default
        found[key] = one
    return found


def _of_type(kind: Any) -> Schema:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    plain = {bool: "boolean", int: "integer", float: "number", str: "string"}
    if kind in plain:
        return {"type": plain[kind]}
    if origin is typing.Annotated:
        return _of_type(arguments[0])
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, types.UnionType):      # `none` stands for null
        return {"anyOf": [{"enum": [None, "none"]} if one is type(None) else _of_type(one) for one in arguments]}
    if origin in (list, tuple):
        return {"type": "array"}
    return {"type": "object"} if origin in (dict, Mapping) else {}


@cache
def _comments(cls: type) -> dict[str, str]:
    """Field -> the comment behind it, of a dataclass and of those that it is made of; lines that go on included."""
    found: dict[str, str] = {}
    for base in cls.__mro__:
        try:
            source = textwrap.dedent(inspect.getsource(base))
        except (OSError, TypeError):            # a variant's is made, not written
            continue
        last = ""
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            written = re.match(r"\s*(\w+)\s*:[^=\n]", token.line)
            if token.type == tokenize.COMMENT and written and token.line.strip() != token.string:
                last = written[1]
                found.setdefault(last, token.string.lstrip("# "))
            elif token.type == tokenize.COMMENT and last in found and token.line.strip() == token.string:
                found[last] += " " + token.string.lstrip("# ")
            elif written and written[1] != last:
                last = ""
    return found


# ---- tasks and attacks ----

def _named(known: Sequence[str], **more: Any) -> Schema:
    """One of some names, or another, of a plug-in that the schema does not know."""
    return {"anyOf": [{"enum": list(known)}, {"type": "string"}], **more}


def _task(plugins: Sequence[str]) -> Schema:
    sets = data.names(plugins)
    solvers = {name: {"type": "object", "properties": parameters(kind)} for name, kind in solver.SOLVERS.items()}
    rules = [*partition.RULES, "by"]
    properties: Schema = {key: {} for key in TASK_KEYS} | {
        "data": {"type": "object", "properties": {
            "set": _named(sets, description="The data set."),
            "directory": {"type": "string", "description": "Where its files are, seen from this file."},
            "held_out": {}, "normalise": {},
            "x": {"description": "Of huggingface: the column of inputs, or several."},
            "y": {"type": "string", "description": "Of huggingface: the column of targets."},
            "columns": {"description": "Of huggingface: columns for `partition: {by: ...}`."},
            "name": {"type": "string", "description": "Of torchvision: a class of torchvision.datasets."},
            "options": {"type": "object", "description": "Of torchvision: more arguments of the class."},
            "train": {"type": "string", "description": "The split for training, `train` by default."},
            "test": {"type": "string", "description": "The split for tests, `test` by default."}}},
        "partition": {"anyOf": [_named(rules), {"type": "object", "properties": {rule: {} for rule in rules}}],
                      "description": "How samples are shared out among the clients."},
        "model": _named(models.names(plugins), description="The model."),
        "objective": {"anyOf": [_named(objectives.names(plugins)), {"type": "object"}]},
        "solver": {"type": "object", "properties": solvers, "description": "How a client trains."}}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _attacks(properties: Schema, plugins: Sequence[str]) -> None:
    """The attacks by name, with their parameters, in place of any mapping."""
    for kind in attacks.KINDS:
        known = attacks.known(kind, plugins)
        cases = [{"if": {"properties": {"name": {"const": name}}, "required": ["name"]},
                  "then": {"properties": {"name": {}, **parameters(attacks.parameters(attack))},
                           "additionalProperties": False}} for name, attack in known.items()]
        entry = {"type": "object", "required": ["name"], "properties": {"name": _named(list(known))}, "allOf": cases}
        said = properties[kind].get("description")
        properties[kind] = {"anyOf": [_named(list(known)), entry, _NULL], **({"description": said} if said else {})}

