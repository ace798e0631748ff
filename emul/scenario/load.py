"""From a file to a checked scenario, one step after the other: read, edit, validate, convert, check.

`source` reads text, `compose` and `edits` put files and options on top, `validation` makes sections of it (the models
are in `models` and the module of each section), the conversions below make the values of the lower layers, and `checks`
asks those layers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from emul.base.plain import PlainDict, PlainMapping
from emul.network.models.contacts import ContactSpec
from emul.scenario import scenario as plain
from emul.scenario.attacks import attack_values
from emul.scenario.checks import check_world
from emul.scenario.devices import devices_value
from emul.scenario.document import validated
from emul.scenario.edits import apply_set, extended, normalise, overlaid, override, text_of
from emul.scenario.faults import fault_values, node_speed
from emul.scenario.groups import group_values
from emul.scenario.links import link_rules
from emul.scenario.radio import media_values, radio_value
from emul.scenario.running import Limits, network_value, record_value, sweep_values
from emul.scenario.scenario import Scenario
from emul.scenario.sections import SoundParts, absolute
from emul.scenario.source import Source, of_values, read
from emul.scenario.topology import contacts_value, topology_spec
from emul.scenario.traffic import traffic_values
from emul.scenario.wording import Verdicts, scenario_error, shown

Given = str | os.PathLike[str] | PlainMapping | Scenario            # the sources of a scenario
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
    """Its name in errors: the file, or the scenario's own name."""
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
    """Each step once, in this order; what is wrong is told of all of them together. plugins None: nothing is checked.
    """
    source = _edited(source, name, path, sets, seed)
    sections, wrong = validated(source.tree)
    parts = _with_sky(_converted(sections, path.parent))
    checked = Verdicts() if plugins is None else check_world(parts, source.tree, plugins)
    for below, found, expected in [*wrong, *checked.found]:
        source.problem(below, found, expected)
    if source.problems:
        raise scenario_error(name, source.problems)
    return Scenario(**_with_lines(parts, source), path=path, warnings=checked.warnings,
                    notes=checked.notes)


def _edited(source: Source, name: str, path: Path, sets: Sequence[Edit], seed: int | None) -> Source:
    """The source on top of the files that it extends, under what the command or the caller changes."""
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
            normalise(source)           # the next one may reach into a value that this one wrote in short
    if seed is not None:
        source.tree["seed"] = seed
        override(source, ("seed",), "--seed")
    return source


# ---- conversion ----

def _converted(sections: SoundParts, base: Path) -> SoundParts:
    """The fields of Scenario that the sound sections give."""
    parts: PlainDict = {}
    for key, (field, convert) in _CONVERSIONS.items():
        if key in sections:
            parts[field] = convert(sections[key], base)
    return parts


def _with_sky(parts: SoundParts) -> SoundParts:
    """A constellation makes the contacts, whatever else is said of them."""
    topology = parts.get("topology")
    if topology is None or topology.constellation is None:
        return parts
    spec = parts.get("contacts") or ContactSpec()
    return {**parts, "contacts": replace(spec, constellation=topology.constellation)}


def _task(task: PlainDict, base: Path) -> PlainDict:
    data = task["data"]
    directory = data.get("directory") if isinstance(data, dict) else None
    if not isinstance(directory, str) or directory.startswith("~"):
        return task
    return task | {"data": data | {"directory": str(absolute(directory, base))}}


_CONVERSIONS: dict[str, tuple[str, Callable[..., object]]] = {
    "name": ("name", lambda name, base: name),
    "seed": ("seed", lambda seed, base: seed),
    "topology": ("topology", topology_spec),
    "links": ("link_rules", link_rules),
    "traffic": ("traffic", traffic_values),
    "media": ("media", media_values),
    "radio": ("radio", radio_value),
    "contacts": ("contacts", contacts_value),
    "groups": ("groups", group_values),
    "nodes": ("node_speeds", lambda rules, base: [node_speed(rule) for rule in rules]),
    "faults": ("faults", fault_values),
    "task": ("task", _task),
    "training": ("training", lambda training, base: training),
    "attacks": ("attacks", attack_values),
    "compute": ("compute", lambda c, base: plain.ComputeTime(c.mode or "zero", absolute(c.file, base), c.device,
                                                               absolute(c.trace, base), c.take or "drawn", c.default,
                                                               c.memory)),
    "devices": ("devices", devices_value),
    "fuse": ("fuse", lambda f, base: None if f is None else plain.FusedTraining(f.clients, f.lanes)),
    "schemes": ("schemes", lambda entries, base: [(e["name"], {k: v for k, v in e.items() if k != "name"})
                                                  for e in entries]),
    "stop": ("stop", lambda s, base: plain.Stop(s.rounds, s.accuracy, s.virtual_time, s.loss)),
    "evaluation": ("evaluation", lambda e, base: plain.Evaluation(e.every, e.scope)),
    "workers": ("workers", lambda w, base: plain.WorkerTimeout(w.timeout / 1e9)),
    "sweep": ("sweep", sweep_values),
    "network": ("network", network_value),
    "limits": ("limits", lambda rule, base: Limits(rule.max_message, rule.max_unread)),
    "record": ("record", lambda rule, base: record_value(rule)),
}


def _with_lines(parts: SoundParts, source: Source) -> SoundParts:
    """Rules, topology and compute know their lines, for what is found out about them later."""
    rules = [replace(rule, line=source.lines.get(("links", i))) for i, rule in enumerate(parts["link_rules"])]
    compute = replace(parts["compute"], line=source.lines.get(("compute", "file")))
    return {**parts, "link_rules": rules, "compute": compute,
            "topology": replace(parts["topology"], line=source.lines.get(("topology",)))}
