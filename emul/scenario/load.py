"""From a file to a checked scenario, one step after the other: read, edit, validate, convert, check.

`source` reads text, `edits` puts files and options on top, `document` makes sections of it, `scenario` makes values of
the lower layers of those, and `checks` asks these layers. A section has its model, its own checks, its value and the
way back to YAML in one module: `topology`, `links`, `traffic`, `radio`, `groups`, `devices`, `faults`, `task`,
`attacks`, `schemes`, and `running` for the small ones on a run itself.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from emul.base.plain import PlainMapping
from emul.network.models.contacts import ContactSpec
from emul.scenario.checks import check_world
from emul.scenario.document import network_of_loop, validated
from emul.scenario.edits import Edit, edited
from emul.scenario.scenario import Scenario, converted
from emul.scenario.sections import SoundParts
from emul.scenario.source import Source, of_values, read, text_of
from emul.scenario.wording import Verdicts, scenario_error

Given = str | os.PathLike[str] | PlainMapping | Scenario            # the sources of a scenario


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
    seed = getattr(seed, "item", lambda: seed)()        # NumPy's as Python's
    source = edited(source, name, path, sets, seed)
    network_of_loop(source.tree)
    sections, wrong = validated(source.tree)
    parts = _with_sky(converted(sections, path.parent))
    checked = Verdicts() if plugins is None else check_world(parts, source.tree, plugins)
    for below, found, expected in [*wrong, *checked.found]:
        source.problem(below, found, expected)
    if source.problems:
        raise scenario_error(name, source.problems)
    return Scenario(**_with_lines(parts, source), path=path, warnings=checked.warnings,
                    notes=checked.notes)


def _with_sky(parts: SoundParts) -> SoundParts:
    """A constellation makes the contacts, whatever else is said of them."""
    topology = parts.get("topology")
    if topology is None or topology.constellation is None:
        return parts
    spec = parts.get("contacts") or ContactSpec()
    return {**parts, "contacts": replace(spec, constellation=topology.constellation)}


def _with_lines(parts: SoundParts, source: Source) -> SoundParts:
    """Rules, topology and compute know their lines, for what is found out about them later."""
    rules = [replace(rule, line=source.lines.get(("links", i))) for i, rule in enumerate(parts["link_rules"])]
    compute = replace(parts["compute"], line=source.lines.get(("compute", "file")))
    return {**parts, "link_rules": rules, "compute": compute,
            "topology": replace(parts["topology"], line=source.lines.get(("topology",)))}
