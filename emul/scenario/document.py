"""The format of scenario files, version 1, and what pydantic finds wrong with one, in the words of this project.

One model per mapping. Variants ("none" or a model, a generator or a file) are one model each with a check of the whole,
not unions: pydantic reports every branch of a union that failed, and nobody can tell from that what was meant.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Literal, Union

from pydantic import AfterValidator, BaseModel, Field, PlainValidator, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from emul.base.plain import PlainDict, PlainMapping
from emul.scenario.attacks import AttackRule
from emul.scenario.devices import DevicesRule
from emul.scenario.faults import FaultRule, NodeRule
from emul.scenario.groups import ClientGroupRule, distinct_groups
from emul.scenario.links import LinkSection
from emul.scenario.radio import MediumRule, RadioRule
from emul.scenario.running import (
    MOST_ROUNDS,
    AnyFuse,
    ComputeSection,
    EvaluationSection,
    LimitsRule,
    NetworkRule,
    RecordRule,
    StopSection,
    SweepRule,
    WorkersSection,
)
from emul.scenario.schemes import entry_value, with_labels
from emul.scenario.sections import (
    Section,
    Seed,
    Text,
    one_of,
)
from emul.scenario.task import NEEDED, task_section
from emul.scenario.topology import ContactsRule, TopologySection
from emul.scenario.traffic import TrafficRule, distinct_names
from emul.scenario.wording import MISSING, Finding, Path, nearest, shown

VERSION = 1


def _version(value: object) -> int:
    if value != VERSION or isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"expected {VERSION}, the version of the format that this emul reads")
    return VERSION


def _name(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", value):
        raise ValueError("expected a name of letters, digits and _ . -")
    return value


class Document(Section):
    """A whole scenario file."""

    # The version of the format: 1.
    emul: Annotated[int, PlainValidator(_version, json_schema_input_type=Literal[1])]
    # Letters, digits and `_ . -`; names the run directories.
    name: Annotated[str, PlainValidator(_name, json_schema_input_type=str)]
    # A whole number, 0 or more: of every random choice. `--seed N` replaces it.
    seed: Seed
    # The nodes and the graph that joins them.
    topology: TopologySection
    # [none] Latency, bandwidth, losses and more of the links.
    links: list[LinkSection] = Field(default=[])
    # [none] Background traffic on links, beside the messages of the scheme.
    traffic: Annotated[list[TrafficRule], AfterValidator(distinct_names)] = Field(default=[])
    # [none] Radio cells whose links share time.
    media: dict[Text, MediumRule] = Field(default={})
    # [none] Places, nodes that move, and the rates and handovers that follow from that.
    radio: RadioRule | None = None
    # [none] The plan of the times at which links transmit, as of satellites.
    contacts: ContactsRule | None = None
    # [none] Clients that are drawn together and share speed, device, link and availability.
    groups: Annotated[list[ClientGroupRule], AfterValidator(distinct_groups)] = Field(default=[])
    # [none] Speeds of nodes.
    nodes: list[NodeRule] = Field(default=[])
    # [none] Classes of devices with their speeds and watts.
    devices: DevicesRule | None = None
    # [none] Failures of links and nodes, with their times.
    faults: list[FaultRule] = Field(default=[])
    # Data, model and local training.
    task: Annotated[PlainDict, PlainValidator(task_section)]
    # `skip`: times and bytes alone; nothing is learned.
    training: Annotated[str, one_of("run", "skip", what="way")] = "run"
    # [none] Nodes that send false updates or train on false samples.
    attacks: list[AttackRule] = Field(default=[])
    # The cost of computations in virtual time.
    compute: ComputeSection
    # [off] Local trainings of many clients, or their passes through equal pieces of a model, as one computation.
    fuse: AnyFuse = None
    # The schemes, which run one after the other over the same network.
    schemes: Annotated[list[Annotated[PlainDict, PlainValidator(entry_value)]], Field(min_length=1),
                       AfterValidator(with_labels)]
    # The end of a run.
    stop: StopSection
    # [every round, global] The rounds and the test samples of an evaluation.
    evaluation: EvaluationSection = EvaluationSection()
    # [30 s] The time after which a worker counts as hanging.
    workers: WorkersSection = WorkersSection()
    # [none] The values that `emul sweep` varies.
    sweep: SweepRule | None = None
    # [its own draws] The record of another run whose draws the links take.
    network: NetworkRule = NetworkRule()
    # [1 GiB, 1000] The largest message, and the most unread messages of one sender.
    limits: LimitsRule = LimitsRule()
    # [last models] Models of rounds and messages that are kept beside the tables.
    record: RecordRule = RecordRule()

    def wrong(self) -> list[Finding]:
        if self.fuse is not None and self.compute.mode == "measured":
            return [(("fuse",), "", "cannot be used with compute mode: measured: clients that are trained as one "
                     "have no cost of their own; `emul profile` measures them one by one")]
        if not self.task and any(entry["name"] != LOOP for entry in self.schemes):
            return [(("task", key), MISSING, "is required") for key in NEEDED]
        return []


# ---- a network for a loop ----

LOOP = "loop"                           # the scheme that `emul.Clock` runs


def network_of_loop(tree: PlainDict) -> None:
    """Complete, in place, what says neither a task nor schemes: it is a network, and `emul.Clock` runs a loop on it."""
    if "task" not in tree and "schemes" not in tree:
        tree |= {"task": {}, "schemes": [{"name": LOOP}], "stop": tree.get("stop") or {"rounds": MOST_ROUNDS},
                 "compute": tree.get("compute") or {"mode": "measured"}}


# ---- a document against these models ----

_REQUIRED: dict[Path, str] = {(key,): f", such as {example}" for key, example in (
    ("emul", f"emul: {VERSION}"), ("name", "name: first"), ("seed", "seed: 1"),
    ("topology", "topology: {generator: star, clients: 10}"),
    ("task", "task: {data: {set: digits}, model: digits_mlp, solver: {sgd: {lr: 0.1, steps: 5, batch: 32}}}"),
    ("compute", "compute: {mode: measured}"), ("schemes", "schemes: [fedavg]"), ("stop", "stop: {rounds: 30}"))}
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
    # the sections that are sound are validated once more, each alone, and go on to their checks: a mistake in one must
    # not hide what the network, the task or a scheme would find wrong with the others
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
        yield path, MISSING, "is required" + _REQUIRED.get(path, _words_at(path))
    elif kind == "extra_forbidden":
        model = _model_at(path[:-1])
        yield path, shown(value), "unknown key" + (nearest(
            str(path[-1]), [info.alias or key for key, info in model.model_fields.items()]) if model else "")
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


def _words_at(path: Path) -> str:
    """The words of which the key at `path` takes one; "" if it takes others."""
    model = _model_at(path[:-1])
    info = model.model_fields.get(str(path[-1])) if model else None
    kinds = [validator.json_schema_input_type for validator in (info.metadata if info else ())
             if isinstance(validator, PlainValidator)]
    words = [str(word) for kind in kinds if typing.get_origin(kind) is Literal for word in typing.get_args(kind)]
    return f": one of {', '.join(words)}" if words else ""


def _inner(annotation: object) -> object:
    """An annotation without Annotated and without "or None"."""
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return _inner(typing.get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return _inner(next(a for a in typing.get_args(annotation) if a is not type(None)))
    return annotation
