"""The JSON schema of scenario files, for editors: keys, words and descriptions as one types.

It is made of the models that check a file and of every scheme's `Params`. The comment above a field is the description
of its key; in the model of a section, words in brackets at its head tell a default that the field itself does not. The
tables of docs/scenario.md are made of the same comments. An editor is to help and not to refuse: a file that it accepts
may still be wrong, and what depends on several keys is left to `emul check`.
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

from emul.base.errors import EmulError
from emul.base.plain import PlainDict
from emul.learning import csv_data, data, images, models, objectives, partition, solver
from emul.registry import attacks, schemes
from emul.roles import Scheme
from emul.scenario.document import Document, network_of_loop
from emul.scenario.edits import EXTENDS
from emul.scenario.params import scenario_keys
from emul.scenario.schemes import COMPRESS, LABEL, PLACES
from emul.scenario.sections import Section
from emul.scenario.task import TASK_KEYS

Schema = PlainDict

_NULL = {"type": "null"}
_TEXT_OR_NUMBER = ["string", "integer"]
_MISSPELT = 5                # letters of a name, at least, whose misspellings are refused
_FIELD_COLUMN = 4            # where the fields of a class begin


def schema(plugins: Sequence[str] = ()) -> Schema:
    """The schema, of JSON Schema draft 2020-12. plugins: modules whose schemes and parts of tasks it names, too."""
    found = Document.model_json_schema(by_alias=True, schema_generator=_Generator, mode="validation")
    models = sections()
    _described(found, Document)
    for name, section in found["$defs"].items():
        if name in models:
            _described(section, models[name])
        section.pop("required", None)           # may stand in the file that this one extends
    properties = found["properties"]
    for section in properties.values():         # a file on top of another takes keys away
        if section.get("type") == "array" and "default" in section:
            section["type"] = ["array", "null"]
    properties["schemes"] |= {"type": "array", "minItems": 1, "items": _scheme(plugins)}
    properties["task"] |= _task(plugins)
    properties[EXTENDS] = {"type": "string", "description": "A scenario file that this one is put on top of."}
    _attacks(found["$defs"]["AttackRule"]["properties"], plugins)
    completed: PlainDict = {}
    network_of_loop(completed)                  # what a network for a loop may leave out, all of it
    required: list[str] = found.pop("required")
    of_run = [key for key in required if key in completed]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Scenario of emul",
            "description": "An experiment: network, learning task, schemes. docs/scenario.md explains every key.",
            **{key: found[key] for key in ("type", "properties", "additionalProperties", "$defs")},
            "if": {"not": {"required": [EXTENDS]}},
            "then": {"required": [key for key in required if key not in completed],
                     "if": {"anyOf": [{"required": ["task"]}, {"required": ["schemes"]}]},
                     "then": {"required": of_run}}}


class _Generator(GenerateJsonSchema):
    """Without titles made of names, and with null wherever a key may be taken away."""

    def field_title_should_be_set(self, schema: object) -> bool:
        return False

    def generate(self, schema: Any, mode: JsonSchemaMode = "validation") -> Schema:
        found = super().generate(schema, mode)
        for section in (found, *found.get("$defs", {}).values()):
            section.pop("title", None)
            section.pop("description", None)    # docstrings of the models are for their readers
        return found


# ---- descriptions ----

def sections() -> dict[str, type[Section]]:
    """Name -> model, of all mappings of a scenario that pydantic checks."""
    found: dict[str, type[Section]] = {}
    wanted = [Section]
    while wanted:
        wanted = [below for model in wanted for below in model.__subclasses__()]
        found |= {model.__name__: model for model in wanted}
    return found


def _described(section: Schema, model: type[Section]) -> None:
    """Add the comments above the fields of a model, in plain text."""
    said = descriptions(model)
    for key, value in section.get("properties", {}).items():
        if key in said:
            value["description"] = said[key].replace("`", "")


def descriptions(model: type[Section]) -> dict[str, str]:
    """Key -> the comment above its field. Brackets at its head tell the default, or that the key is needed."""
    said = _comments(model)
    return {info.alias or field: "[needed] " * info.is_required() + said[field]
            for field, info in model.model_fields.items() if field in said}


# ---- schemes ----

def _scheme(plugins: Sequence[str]) -> Schema:
    """An entry of `schemes`: a name, or a mapping with the parameters of the scheme that it names."""
    cases, names = [], []
    for name in schemes.known(plugins):
        with contextlib.suppress(EmulError):
            scheme = schemes.find(name, plugins)
            names.append(name)
            cases.append({"if": {"properties": {"name": {"const": name}}, "required": ["name"]},
                          "then": {"properties": _of_entry(scheme), "additionalProperties": False}})
    known = _named(names, description="The scheme: its name.")
    entry = {"type": "object", "required": ["name"], "properties": {"name": known}, "allOf": cases}
    return {"anyOf": [*_names(names), entry]}


def _of_entry(scheme: Scheme[object]) -> Schema:
    codes = {COMPRESS: {"type": ["string", "object"], "description": "A codec of updates, or {up: codec, down: codec}"}}
    return {"name": {"type": "string", "description": scheme.headline},
            LABEL: {"type": "string", "description": "What tables and figures call this entry."},
            PLACES: {"type": "object", "description": "Role of the scheme -> node of the topology.",
                     "properties": {role: {} for role in scheme.roles}},
            **(codes if "up" in scheme.compress else {}), **parameters(scheme.params)}


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


def _of_type(kind: object) -> Schema:
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


def _comments(cls: type) -> dict[str, str]:
    """Field -> its comment, of a dataclass and of those that it is made of."""
    found: dict[str, str] = {}
    for base in cls.__mro__:
        found = _own_comments(base) | found
    return found


@cache
def _own_comments(cls: type) -> dict[str, str]:
    """Field -> its comment: the lines above the field, then what stands behind it, with the lines below that go on:
    their words begin further to the right."""
    try:
        source = textwrap.dedent(inspect.getsource(cls)) if getattr(cls, "__annotations__", None) else ""
    except (OSError, TypeError):                # a variant's is made, not written
        return {}
    own: dict[str, list[str]] = {}
    above: list[str] = []
    name = ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        field = re.match(r"    (\w+)\s*:[^=\n]", token.line)
        alone = token.line.strip() == token.string
        text = token.string.lstrip("# ")
        begins = token.end[1] - len(text)
        if token.type == tokenize.COMMENT and alone and begins <= _FIELD_COLUMN + len("# "):
            name = ""
            above.append(text)
        elif token.type == tokenize.COMMENT and (field or alone):
            own.setdefault(field[1] if field else name, []).append(text)
        elif field and field[1] != name:
            name = field[1]
            own.setdefault(name, []).extend(above)
            above = []
        elif token.type == tokenize.NAME and not field:         # a method, or what is behind the fields
            name, above = "", []
    return {key: " ".join(said) for key, said in own.items() if key and said}


# ---- tasks and attacks ----

def _named(known: Sequence[str], **more: object) -> Schema:
    """One of some names, or another, of a plug-in that the schema does not know."""
    return {"anyOf": [*_names(known)], **more}


def _names(known: Sequence[str]) -> list[Schema]:
    """The names, or another one that is no misspelling of one of them. Editors tell the mistake of the first."""
    return [{"type": "string", "allOf": [{"pattern": f"^(?!(?:{misspelt(name)})$)",
                                          "patternErrorMessage": f'did you mean "{name}"?'}
                                         for name in known if len(name) >= _MISSPELT]}, {"enum": list(known)}]


def misspelt(name: str) -> str:
    """A regular expression of the name with a letter left out, doubled or replaced, or with two exchanged. One letter
    more is none: somebody's own `fedavgm`.

    >>> [bool(re.fullmatch(misspelt("krum"), text)) for text in ("kurm", "krun", "kruum", "kum", "krumm2", "median")]
    [True, True, True, True, False, False]
    """
    letters = [re.escape(letter).replace(r"\-", "-") for letter in name]       # JavaScript takes no escaped "-"
    found = []
    for i, letter in enumerate(letters):
        before, after = "".join(letters[:i]), "".join(letters[i + 1:])
        found += [f"{before}.?{after}", f"{before}{letter * 2}{after}"]
        if i + 1 < len(letters) and letter != letters[i + 1]:
            found.append(f"{before}{letters[i + 1]}{letter}{''.join(letters[i + 2:])}")
    return "|".join(found)


# key of `task.data` -> its description
_DATA = {
    "set": "The data set: `digits` (part of scikit-learn), `mnist`, `fashion-mnist`, `cifar10`, `cinic10`, `images` "
           "(a folder of images), `arrays` (files of NumPy), `csv` (tables), `text` (sources of an installed "
           "package), `huggingface` and `torchvision` (their files on disk), or one of your own.",
    "directory": "The folder of its files, or one that has that folder under the name of the set; of `arrays` the "
                 "`.npz`, or the folder of `.npy`; of `csv` the file, or a folder with `train.csv` and `test.csv`. By "
                 "default `$EMUL_DATA`.",
    "held_out": "Training samples kept from the clients, for nodes that are none; 0 by default.",
    "normalise": "`{mean: 0.1307, std: 0.3081}`, applied after pixels are scaled to [0, 1]; a list has a number for "
                 "each channel. Built-in sets have their own by default.",
    "x": "Of `huggingface` and `csv`: the column of inputs, or a list where a sample has several tensors.",
    "y": "Of `huggingface` and `csv`: the column of targets.",
    "columns": "Of `huggingface` and `csv`: columns for `partition: {by: ...}`.",
    "categories": "Of `csv`: columns of texts, whatever their values look like.",
    "missing": "Of `csv`: the rule for a missing value; `refuse` by default.",
    "channels": "Of `images`: 1 (grey) or 3; by default 3 if any image has colours.",
    "name": "Of `torchvision`: a class of `torchvision.datasets`, such as `SVHN`.",
    "options": "Of `torchvision`: more arguments of the class.",
    "package": "Of `text`: the installed package whose sources it is.",
    "window": "Of `text`: the bytes of a sample.",
    "sha256": "Of `text`: the digest that its sources must have.",
    "train": "Of `huggingface` and `torchvision`: the split for training, `train` by default.",
    "test": "Of `huggingface` and `torchvision`: the split for tests, `test` by default; of `csv` the share of the "
            "rows of one file that are test samples, 0.2 by default; of `text` the number of test windows, drawn once "
            "and for all; all by default."}


# key of `task` -> its description, in the order of TASK_KEYS
_TASK = {
    "data": "The data set; needed.",
    "root": "Root data: training samples that a trusted node holds.",
    "clusters": "Clusters of clients whose data differ in kind.",
    "choose_on": "Samples of its own, always the same, on which a client compares the models of clusters (`ifca`, "
                 "`rfca`, `ebs_cfl`); all by default.",
    "partition": "The samples of each client; `iid` by default.",
    "model": "The model, or one with options, such as {transformer: {blocks: 5}}; needed.",
    "solver": "The local training; needed.",
    "objective": "The function that clients minimise, or one with options; by default by the targets.",
    "declared": "The sizes of a larger model that this one stands for."}

_ROOT = {
    "samples": "Their number; needed. If the task has clusters, each gives an equal share.",
    "bias": "Bias probability of FLTrust: the share that is of class `class`; the others are drawn from the other "
            "classes. By default as they come.",
    "class": "The class that `bias` favours, 0 by default.",
    "parts": "The way in which schemes that ask for parts get them: `random`, the default, or `labels` (sorted by "
             "label, then cut). With clusters a part has the samples of its cluster."}

_CLUSTERS = {
    "rotate": "`{rotate: [0, 90]}`: square images; those of the c-th cluster are turned by the c-th angle, a "
              "multiple of 90 degrees.",
    "relabel": "`{relabel: 2}`: two clusters, each with a permutation of the labels drawn from the seed; the labels "
               "of the first stay."}

_PARTITIONS = {
    "iid": "Equal sizes, at random.",
    "sizes": "`{sizes: linear}`: unequal sizes, contents as `iid`, one sample a client at least. Client k holds a "
             "share in proportion to k (`linear`), k^2 (`square`) or e^k (`exponential`), as the partitioners of "
             "flwr-datasets; `{sizes: {lognormal: 1.0}}`: to exp(sigma z), with a normal z drawn for each client.",
    "shards": "`{shards: 2}`: the samples, sorted by label, are cut into shards of equal size, of which each client "
              "gets 2: most hold 2 classes. McMahan et al., AISTATS 2017.",
    "dirichlet": "`{dirichlet: 0.2}`: label skew with equal sizes; a small value is a strong skew.",
    "classes": "`{classes: 2}`: every client holds so many classes.",
    "class_space": "`{class_space: {avg: 3, std: 2, shots: 100, test_shots: 40}}`: every client draws how many "
                   "classes it holds, from max(2, `avg` - `std`) to `avg` + `std`, then which, then `shots` training"
                   " samples of each, none of them given twice; every class has a holder. Personal models are "
                   "evaluated on `test_shots` (40) test samples of each of the client's classes.",
    "degree": "`{degree: 0.5}`: degree of non-IID data of Fang et al. and FLTrust: the clients are split into a "
              "group for each class; a sample goes to the group of its class with this probability, else to another,"
              " and in a group to all clients alike. With C classes 1/C is i.i.d.",
    "bootstrap": "`{bootstrap: 100}`: 100 samples with replacement for each client; for more clients than samples.",
    "by": "`{by: writer}`: natural: all samples with one value of a column of the data are with one client. The "
          "values are dealt to the clients at random, their numbers differ by one at most. If test samples have the "
          "column, too, personal models are evaluated on those of the client's values. Built-in sets have no "
          "columns.",
    "columns": "`{columns: {groups: 2}}`: clients have columns of the samples in place of samples: vertical "
               "learning.",
    "flwr_datasets": "`{flwr_datasets: {DirichletPartitioner: {alpha: 0.3}}}`: a partitioner of `flwr-datasets` with"
                     " its arguments."}

_OBJECTIVES = {
    "cross_entropy": "The default where targets are integers: -log softmax of the target. For targets (n, t), the "
                     "mean over a sample's own; -100 counts for nothing.",
    "squared_error": "`{squared_error: {factor: 1, over: mean}}`: the default where targets are floats: `factor` "
                     "times the square of what the model is off by, the `mean` or the `sum` over a sample's outputs."
                     " Labels are compared as one-hot vectors."}


def _task(plugins: Sequence[str]) -> Schema:
    kinds: dict[str, Schema] = {
        "set": _named(data.names(plugins)), "missing": {"enum": list(csv_data.MISSING)},
        "channels": {"enum": list(images.CHANNELS)}, "options": {"type": "object"},
        "window": {"type": "integer", "minimum": 1}, "test": {"type": ["string", "number"]},
        **{key: {"type": "string"} for key in ("directory", "y", "name", "package", "sha256", "train")}}
    solvers = {name: {"type": "object", "properties": parameters(kind)} for name, kind in solver.SOLVERS.items()}
    rules = [*partition.RULES, "by"]
    kinds_of_task: dict[str, Schema] = {
        "data": {"type": "object", "properties": {
            key: {**kinds.get(key, {}), "description": said} for key, said in _DATA.items()}},
        "root": {"properties": _explained(_ROOT)},
        "clusters": {"properties": _explained(_CLUSTERS)},
        "partition": {"anyOf": [_named(rules), {"type": "object", "properties": _explained(_PARTITIONS)}]},
        "model": {"anyOf": [_named(models.names(plugins)), {"type": "object"}]},
        "objective": {"anyOf": [_named(objectives.names(plugins)),
                                {"type": "object", "properties": _explained(_OBJECTIVES)}]},
        "solver": {"type": "object", "properties": solvers},
        "declared": {"type": "object", "additionalProperties": False, "properties": {
            "parameters": {"type": "number", "minimum": 1, "description": "N, of the larger model; needed."},
            "tokens": {"type": "number", "minimum": 1, "description": "Tokens that a node sees in a step; needed."},
            "layers": {"type": "integer", "minimum": 1, "description":
                       "Layers of equal size, of which `streaming_diloco` makes fragments; by default those of the "
                       "small model."}}}}
    properties = {key: {**kinds_of_task.get(key, {}), "description": _TASK[key]} for key in TASK_KEYS}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _explained(keys: Mapping[str, str]) -> Schema:
    return {key: {"description": said} for key, said in keys.items()}


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

