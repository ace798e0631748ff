"""A checked scenario: plain frozen data in the units of the emulator; the way to it from a file, and back to YAML."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml import YAML

from emul.base.plain import PlainDict
from emul.network import LinkRule, TopologySpec
from emul.network.models.background import Traffic
from emul.network.models.contacts import ContactSpec
from emul.network.models.media import MediumSpec
from emul.network.models.radiofiles import RadioSpec
from emul.scenario.attacks import AttackSpec, attack_document, attack_values
from emul.scenario.devices import Devices, devices_document, devices_value, equipment
from emul.scenario.faults import Fault, NodeSpeed, fault_document, fault_values, node_document, node_values
from emul.scenario.groups import ClientGroup, client_group_document, group_values
from emul.scenario.links import link_document, link_rules
from emul.scenario.radio import media_document, media_values, radio_document, radio_value
from emul.scenario.running import (
    ComputeTime,
    Evaluation,
    FusedTraining,
    Limits,
    NetworkUse,
    Recorded,
    Stop,
    Sweep,
    WorkerTimeout,
    compute_document,
    compute_value,
    evaluation_document,
    evaluation_value,
    fuse_document,
    fuse_value,
    limits_document,
    limits_value,
    network_document,
    network_value,
    record_document,
    record_value,
    stop_document,
    stop_value,
    sweep_values,
    workers_document,
    workers_value,
)
from emul.scenario.schemes import entry_document, entry_values
from emul.scenario.sections import SoundParts
from emul.scenario.task import task_value
from emul.scenario.topology import contacts_document, contacts_value, topology_document, topology_spec
from emul.scenario.traffic import traffic_document, traffic_values


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
        document = {"emul": 1} | {key: one.document(getattr(self, one.field)) for key, one in _CONVERSIONS.items()}
        return {key: value for key, value in document.items() if value not in ([], None)}


class _Conversion(NamedTuple):
    """From a section of a file to a field of `Scenario`, and back."""

    field: str
    value: Callable[..., object]        # of the section's model, and the folder in which its files are
    document: Callable[..., object]     # as a file says it; None or []: it says nothing


def _as_it_is(section: object, base: Path) -> object:
    return section


def _same(value: object) -> object:
    return value


def _each(document: Callable[..., object]) -> Callable[..., object]:
    return lambda values: [document(value) for value in values]


# in the order of a canonical file
_CONVERSIONS: dict[str, _Conversion] = {
    "name": _Conversion("name", _as_it_is, _same),
    "seed": _Conversion("seed", _as_it_is, _same),
    "topology": _Conversion("topology", topology_spec, topology_document),
    "links": _Conversion("link_rules", link_rules, _each(link_document)),
    "traffic": _Conversion("traffic", traffic_values, _each(traffic_document)),
    "media": _Conversion("media", media_values, media_document),
    "radio": _Conversion("radio", radio_value, radio_document),
    "contacts": _Conversion("contacts", contacts_value, contacts_document),
    "groups": _Conversion("groups", group_values, _each(client_group_document)),
    "nodes": _Conversion("node_speeds", node_values, _each(node_document)),
    "faults": _Conversion("faults", fault_values, _each(fault_document)),
    "task": _Conversion("task", task_value, _same),
    "training": _Conversion("training", _as_it_is, lambda training: None if training == "run" else training),
    "attacks": _Conversion("attacks", attack_values, _each(attack_document)),
    "compute": _Conversion("compute", compute_value, compute_document),
    "devices": _Conversion("devices", devices_value, devices_document),
    "fuse": _Conversion("fuse", fuse_value, fuse_document),
    "schemes": _Conversion("schemes", entry_values, _each(entry_document)),
    "stop": _Conversion("stop", stop_value, stop_document),
    "evaluation": _Conversion("evaluation", evaluation_value, evaluation_document),
    "workers": _Conversion("workers", workers_value, workers_document),
    "network": _Conversion("network", network_value, network_document),
    "limits": _Conversion("limits", limits_value, limits_document),
    "record": _Conversion("record", record_value, record_document),
    "sweep": _Conversion("sweep", sweep_values, lambda sweep: None),       # a run does not look at it
}


def converted(sections: SoundParts, base: Path) -> SoundParts:
    """The fields of Scenario that the sound sections of a file in the folder `base` give."""
    return {one.field: one.value(sections[key], base) for key, one in _CONVERSIONS.items() if key in sections}
