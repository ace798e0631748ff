"""A checked scenario: plain frozen data in the units of the emulator, and back to canonical YAML."""

from __future__ import annotations

import io
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from emul.base.plain import PlainDict
from emul.base.units import format_duration, format_size
from emul.network import LinkRule, TopologySpec
from emul.network.models.background import Traffic
from emul.network.models.contacts import ContactSpec
from emul.network.models.media import MediumSpec
from emul.network.models.radiofiles import RadioSpec
from emul.scenario.attacks import AttackSpec, attack_document
from emul.scenario.devices import Devices, devices_document, equipment
from emul.scenario.faults import Fault, NodeSpeed, fault_document, node_document
from emul.scenario.groups import ClientGroup, client_group_document
from emul.scenario.links import link_document
from emul.scenario.radio import media_document, radio_document
from emul.scenario.running import (
    Limits,
    NetworkUse,
    Recorded,
    Sweep,
    limits_document,
    network_document,
    record_document,
)
from emul.scenario.sections import duration_text, without_none
from emul.scenario.topology import contacts_document, topology_document
from emul.scenario.traffic import traffic_document

NO_EVALUATION = 10**9               # rounds between two evaluations, of a run that has none


@dataclass(frozen=True)
class ComputeTime:
    """The source of virtual compute time: measured, profile, recorded or zero; `file` for profile and recorded.

    trace: a file of what computations took on real devices, which goes before the mode; take: "drawn" by the seed, or
    "in order". device: where models are trained and evaluated, "cpu" or "cuda": the worker's number modulo the GPUs
    that there are.
    """

    mode: str
    file: Path | None = None
    device: str = "cpu"
    trace: Path | None = None
    take: str = "drawn"
    default_ns: int | None = None       # of what neither trace nor profile prices; None: that is an error
    memory: int | None = None           # bytes that a worker on a CPU may hold; None: no limit
    line: int | None = field(default=None, compare=False)       # of `file`, in the scenario's file


@dataclass(frozen=True)
class FusedTraining:
    """At most `clients` of one of `lanes` are trained as one; a node's lane is its number modulo `lanes`."""

    clients: int
    lanes: int = 4


@dataclass(frozen=True)
class Stop:
    """The run ends when the first of these is reached; None: no limit of that kind."""

    rounds: int | None = None
    accuracy: float | None = None
    virtual_time_ns: int | None = None
    loss: float | None = None


@dataclass(frozen=True)
class Evaluation:
    """Evaluate every `every` rounds: the "global" model, or it "per_client"."""

    every: int = 1
    scope: str = "global"


@dataclass(frozen=True)
class WorkerTimeout:
    """A worker without heartbeat for `timeout_s` of real time counts as dead."""

    timeout_s: float = 30.0


@dataclass(frozen=True)
class Scenario:
    """The values of one scenario file, checked. Durations are ns, sizes bytes; paths are absolute.

    schemes: (name, what else its entry says): a label (`emul.scenario.schemes`), and parameters
    (`emul.scenario.params.build_params`). task: as `emul.learning` wants it.
    Equal scenarios say the same thing: lines, path, warnings and what a sweep would vary do not count.
    """

    name: str
    seed: int
    topology: TopologySpec
    link_rules: list[LinkRule]
    node_speeds: list[NodeSpeed]
    faults: list[Fault]
    task: PlainDict
    attacks: list[AttackSpec]
    compute: ComputeTime
    schemes: list[tuple[str, PlainDict]]
    stop: Stop
    training: str = "run"               # or "skip": updates are zeros, nothing is evaluated
    evaluation: Evaluation = field(default_factory=Evaluation)
    workers: WorkerTimeout = field(default_factory=WorkerTimeout)
    network: NetworkUse = field(default_factory=NetworkUse)
    limits: Limits = field(default_factory=Limits)
    record: Recorded = field(default_factory=Recorded)
    traffic: list[Traffic] = field(default_factory=list)
    media: list[MediumSpec] = field(default_factory=list)
    radio: RadioSpec | None = None
    contacts: ContactSpec | None = None
    groups: list[ClientGroup] = field(default_factory=list)
    devices: Devices | None = None
    fuse: FusedTraining | None = None
    sweep: Sweep | None = field(default=None, compare=False)
    path: Path | None = field(default=None, compare=False)
    warnings: list[str] = field(default_factory=list, compare=False)
    notes: list[str] = field(default_factory=list, compare=False)       # what became of the files of the data

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Scenario):
            return NotImplemented
        return self._compared() == other._compared()

    __hash__ = None     # type: ignore[assignment]   # lists and dicts inside

    def _compared(self) -> list[object]:
        bare = replace(self, topology=replace(self.topology, line=None),
                       link_rules=[replace(rule, line=None) for rule in self.link_rules])
        return [getattr(bare, f.name) for f in fields(bare) if f.compare]

    @property
    def equipment(self) -> Devices | None:
        """`devices` with what the groups say on top; None: there are neither."""
        return equipment(self.devices, self.groups)

    def resolved(self) -> str:
        """`document` as canonical YAML text, which loads to an equal scenario, from any directory."""
        yaml: Any = YAML(typ="safe", pure=True)
        yaml.default_flow_style = None      # innermost mappings on one line
        yaml.sort_base_mapping_type_on_output = False
        yaml.width = 110
        yaml.allow_unicode = True
        out = io.StringIO()
        yaml.dump(self.document(), out)
        return out.getvalue()

    def document(self) -> PlainDict:
        """The scenario as a file says it, in plain values; names of files are absolute."""
        return _document(self)


def _document(s: Scenario) -> PlainDict:
    document = {
        "emul": 1, "name": s.name, "seed": s.seed, "topology": topology_document(s.topology),
        "links": [link_document(rule) for rule in s.link_rules],
        "traffic": [traffic_document(entry) for entry in s.traffic],
        "media": media_document(s.media),
        "radio": radio_document(s.radio),
        "contacts": contacts_document(s.contacts),
        "groups": [client_group_document(group) for group in s.groups],
        "nodes": [node_document(rule) for rule in s.node_speeds],
        "faults": [fault_document(fault) for fault in s.faults],
        "task": s.task,
        "training": None if s.training == "run" else s.training,
        "attacks": [attack_document(a) for a in s.attacks],
        "compute": without_none(mode=s.compute.mode, file=None if s.compute.file is None else str(s.compute.file),
                                device=None if s.compute.device == "cpu" else s.compute.device,
                              trace=None if s.compute.trace is None else str(s.compute.trace),
                              take=None if s.compute.trace is None else s.compute.take,
                              default=None if s.compute.default_ns is None else format_duration(s.compute.default_ns),
                              memory=None if s.compute.memory is None else format_size(s.compute.memory)),
        "devices": devices_document(s.devices),
        "fuse": None if s.fuse is None else {"clients": s.fuse.clients, "lanes": s.fuse.lanes},
        "schemes": [{"name": name, **parameters} for name, parameters in s.schemes],
        "stop": without_none(rounds=s.stop.rounds, accuracy=s.stop.accuracy, loss=s.stop.loss,
                             virtual_time=duration_text(s.stop.virtual_time_ns)),
        "evaluation": {"every": s.evaluation.every, "scope": s.evaluation.scope},
        "workers": {"timeout": format_duration(round(s.workers.timeout_s * 1e9))},
        "network": network_document(s.network),
        "limits": limits_document(s.limits),
        "record": record_document(s.record),
    }
    return {key: value for key, value in document.items() if value not in ([], None)}
