"""Changes of a file's values between reading and checking: short forms, --set and --seed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from emul.base.errors import Problem
from emul.scenario.links import BANDWIDTH_NAMES
from emul.scenario.source import Source, read
from emul.scenario.wording import Path, nearest, place, scenario_error, shown

_STEP = re.compile(r"\.?([A-Za-z_][A-Za-z0-9_-]*)|\[(\d{1,6})\]", re.ASCII)


def normalise(source: Source) -> None:
    """Short forms to long ones, in place: a bare scheme name, and the other names of a link's bandwidth."""
    if not isinstance(source.tree, dict):
        return
    schemes = source.tree.get("schemes")
    if isinstance(schemes, list):
        source.tree["schemes"] = [{"name": s} if isinstance(s, str) else s for s in schemes]
    links = source.tree.get("links")
    for i, link in enumerate(links if isinstance(links, list) else []):
        if isinstance(link, dict):
            _one_bandwidth(source, ("links", i), link)


def _one_bandwidth(source: Source, path: Path, link: dict[str, object]) -> None:
    used = [name for name in BANDWIDTH_NAMES if name in link]
    for name in used[1:]:
        source.problem((*path, name), shown(link[name]), f'is another name of "{used[0]}": give one of them')
    for name in used:
        value = link.pop(name)
        if name != used[0] or name == "bandwidth":
            if name == used[0]:
                link[name] = value
            continue
        link["bandwidth"] = value
        old, new = (*path, name), (*path, "bandwidth")
        source.written[new] = source.written.pop(old, place(old))
        for known in (source.lines, source.files):
            if old in known:
                known[new] = known.pop(old)     # type: ignore[assignment]


def apply_set(source: Source, text: str) -> None:
    """One `--set path=value`, e.g. "links[1].outage.p=0.1"; the value is read as YAML. Mistakes are added to
    `source.problems`."""
    written, equals, value_text = text.partition("=")
    path = _path(written.strip())
    if not equals or path is None:
        source.problems.append(Problem("--set", shown(text), 'expected path=value such as "links[1].outage.p=0.1"'))
        return
    name = f"--set {place(path)}"
    path = _by_name(source.tree, path)
    value = read(value_text)
    if value.problems:
        source.problems.append(Problem(name, shown(value_text), value.problems[0].expected))
        return
    wrong = _put(source.tree, path, value.tree)
    if wrong:
        source.problems.append(Problem(name, shown(value.tree), wrong))
        return
    override(source, path, name)


def parameters_of(sets: Sequence[str]) -> dict[str, object]:
    """The parameters that `--set key=value` of a command gives, values read as YAML. Raises ScenarioError.

    >>> parameters_of(["tries=3", "labels=[0, 1]"])
    {'tries': 3, 'labels': [0, 1]}
    """
    source = Source(tree={})
    for edit in sets:
        apply_set(source, edit)
    if source.problems:
        raise scenario_error("command line", source.problems)
    return dict(source.tree)


def override(source: Source, path: Path, name: str) -> None:
    """Say that the value at `path` comes from the option `name`, and no longer from a line of the file."""
    for known in (source.lines, source.written, source.files):
        for old in [p for p in known if p[:len(path)] == path]:
            del known[old]
    source.written[path] = name


def _path(text: str) -> Path | None:
    steps: list[str | int] = []
    end = 0
    while end < len(text):
        match = _STEP.match(text, end)
        if match is None or (end == 0 and match[0][0] in ".[") or (end and match[1] and match[0][0] != "."):
            return None
        steps.append(match[1] if match[1] else int(match[2]))
        end = match.end()
    if len(steps) == 3 and steps[0] == "links" and steps[2] in BANDWIDTH_NAMES:
        steps[2] = "bandwidth"
    return tuple(steps) or None


_NAMED = {"schemes": ("label", "name"), "groups": ("name",)}     # lists whose entries a path may name


def _by_name(tree: object, path: Path) -> Path:
    """`schemes.secagg.threshold` as `schemes[1].threshold`, by label or name; unchanged where none or several match."""
    section = str(path[0])
    entries = tree.get(section) if isinstance(tree, dict) else None
    if section in _NAMED and len(path) > 1 and isinstance(path[1], str) and isinstance(entries, list):
        for key in _NAMED[section]:
            found = [i for i, entry in enumerate(entries) if isinstance(entry, dict) and entry.get(key) == path[1]]
            if len(found) == 1:
                return (section, found[0], *path[2:])
    return path


def _put(tree: Any, path: Path, value: object) -> str | None:
    """Set `path` of `tree` to `value`, or say why that is not possible."""
    here = tree
    for i, step in enumerate(path):
        last = i == len(path) - 1
        wrong = _no_step(here, step, path[:i], last)
        if wrong:
            return wrong
        if last:
            here[step] = value
        else:
            here = here[step]
    return None


def _no_step(here: object, step: str | int, before: Path, last: bool) -> str | None:
    where = place(before) or "the scenario"
    if isinstance(step, int):
        if not isinstance(here, list):
            return f"{where} is no list"
        if step >= len(here):
            return f"{where} has {len(here)} entries, the first is [0]"
        return None
    if len(before) == 1 and before[0] in _NAMED and isinstance(here, list):
        names = [str(entry.get(key)) for entry in here if isinstance(entry, dict) for key in _NAMED[str(before[0])]
                 if key in entry]
        more = f' has several "{step}": say which, as in {before[0]}[0]' if step in names else None
        return where + (more or f' has no "{step}"{nearest(step, names)}')
    if not isinstance(here, dict):
        return f"{where} is {shown(here)}: a path cannot go on below it"
    if step not in here and not last:
        return f'{where} has no "{step}"{nearest(step, here)}'
    return None
