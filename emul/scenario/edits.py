"""Changes of a file's values between reading and checking: short forms, --set, --seed, and files on top of files.

`extends` names the file below, `--set-file` one to be put on top. Mappings are merged key by key, a null takes a key
of the file below away, everything else is replaced; in `links` and `nodes` an entry with the `match` of one below is
merged into it, in `groups` one with its `name`, and the others are added after. Every value keeps the line and the file
that it comes from.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from emul.base.errors import Problem
from emul.scenario.links import BANDWIDTH_NAMES
from emul.scenario.source import Source, read, text_of
from emul.scenario.wording import Path as Place
from emul.scenario.wording import nearest, place, scenario_error, shown

Edit = str | Path                               # "stop.rounds=5", or a file to be put on top


def edited(source: Source, name: str, path: Path, sets: Sequence[Edit], seed: int | None) -> Source:
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


# ---- changes of values ----

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


def _one_bandwidth(source: Source, path: Place, link: dict[str, object]) -> None:
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


def override(source: Source, path: Place, name: str) -> None:
    """Say that the value at `path` comes from the option `name`, and no longer from a line of the file."""
    for known in (source.lines, source.written, source.files):
        for old in [p for p in known if p[:len(path)] == path]:
            del known[old]
    source.written[path] = name


def _path(text: str) -> Place | None:
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


def _by_name(tree: object, path: Place) -> Place:
    """`schemes.secagg.threshold` as `schemes[1].threshold`, by label or name; unchanged where none or several match."""
    section = str(path[0])
    entries = tree.get(section) if isinstance(tree, dict) else None
    if section in _NAMED and len(path) > 1 and isinstance(path[1], str) and isinstance(entries, list):
        for key in _NAMED[section]:
            found = [i for i, entry in enumerate(entries) if isinstance(entry, dict) and entry.get(key) == path[1]]
            if len(found) == 1:
                return (section, found[0], *path[2:])
    return path


def _put(tree: Any, path: Place, value: object) -> str | None:
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


def _no_step(here: object, step: str | int, before: Place, last: bool) -> str | None:
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


# ---- files on top of files ----

EXTENDS = "extends"
MOST = 10                               # files of one chain
# lists whose entries are known by one of their keys
_MATCHED = {"links": "match", "nodes": "match", "groups": "name"}
# keys below which a text is the name of a file, by section; of a task only the folder of its data
_FILES = {"topology": ("file", "stations", "tle"), "links": ("file", "trace"), "faults": ("file", "trace"),
          "compute": ("file", "trace"), "traffic": ("trace",), "contacts": ("file",),
          "radio": ("places", "trace", "file"), "groups": ("file",),
          "devices": ("table", "links"), "network": ("replay",), "task": ("directory",)}


def extended(source: Source, name: str, folder: Path, chain: tuple[Path, ...] = ()) -> Source:
    """The source on top of the file that it extends, if it extends one, and that on top of its own.

    folder: in which files are looked for. Raises ScenarioError where `extends` is wrong, or its file cannot be read.
    """
    normalise(source)
    if not isinstance(source.tree, dict) or EXTENDS not in source.tree:
        return source
    below = source.tree.pop(EXTENDS)
    wrong = _wrong(below, folder, chain)
    if wrong:
        source.problem((EXTENDS,), shown(below), wrong)
        raise scenario_error(name, source.problems)
    file = _absolute(below, folder)
    # names in errors are relative to the folder from which the user named the first file
    shown_as = os.path.relpath(file, folder if os.path.isabs(name) else Path.cwd())
    low = extended(part(file, shown_as), name, file.parent, (*chain, file))
    return merged(low, source)


def part(file: Path, name: str) -> Source:
    """One file of several, its own files under absolute names. Raises ScenarioError for what is no mapping."""
    source = read(text_of(file, name))
    if not source.problems and not isinstance(source.tree, dict):
        source.problem((), shown(source.tree), "expected a mapping of keys of a scenario")
    if source.problems:
        raise scenario_error(name, source.problems)
    source.files = dict.fromkeys(source.lines, name)
    for section, keys in _FILES.items():
        _rebase(source.tree.get(section), keys, file.parent)
    normalise(source)
    return source


def overlaid(source: Source, file: Path) -> Source:
    """The source with a file on top of it, as `--set-file` says. Raises ScenarioError."""
    above = part(file.absolute(), str(file))
    if EXTENDS in above.tree:
        above.problem((EXTENDS,), shown(above.tree[EXTENDS]), "cannot be used in a file that is set on top of another")
        raise scenario_error(str(file), above.problems)
    return merged(source, above)


def _wrong(below: object, folder: Path, chain: tuple[Path, ...]) -> str:
    if not isinstance(below, str) or not below.strip():
        return "expected the name of a scenario file"
    file = _absolute(below, folder)
    if file in chain:
        return "extends itself: " + " -> ".join(one.name for one in (*chain[chain.index(file):], file))
    if len(chain) >= MOST:
        return f"is the end of a chain of more than {MOST} files"
    return "" if file.is_file() else "no such file"


def _absolute(file: str, folder: Path) -> Path:
    return Path(os.path.normpath(folder.absolute() / file))


def _rebase(value: object, keys: tuple[str, ...], folder: Path) -> None:
    """Names of files below some keys, in place, as they are from anywhere."""
    if isinstance(value, list):
        for below in value:
            _rebase(below, keys, folder)
    if isinstance(value, dict):
        for key, below in value.items():
            if key in keys and isinstance(below, str) and below.strip() and not below.startswith("~"):
                value[key] = str(_absolute(below, folder))
            else:
                _rebase(below, keys, folder)


# ---- merging ----

def merged(low: Source, high: Source) -> Source:
    """`high` on top of `low`, both normalised; each value with its line and its file."""
    result = Source(problems=[*low.problems, *high.problems])
    result.tree = _Merge(low, high, result).values(low.tree, high.tree, (), (), ())
    return result


class _Merge:
    def __init__(self, low: Source, high: Source, result: Source):
        self._low, self._high, self._result = low, high, result

    def values(self, low: Any, high: Any, at_low: Place, at_high: Place, to: Place) -> Any:
        """The merged value at `to` of the result, of `low` and `high` at their own places."""
        if isinstance(low, dict) and isinstance(high, dict):
            return self._mappings(low, high, at_low, at_high, to)
        if len(to) == 1 and to[0] in _MATCHED and isinstance(low, list) and isinstance(high, list):
            return self._matched(low, high, to, _MATCHED[to[0]])
        return _copied(self._high, at_high, high, self._result, to)

    def _mappings(self, low: dict[str, object], high: dict[str, object], at_low: Place, at_high: Place,
                  to: Place) -> dict[str, object]:
        _copy_place(self._high, at_high, self._result, to)
        found: dict[str, object] = {}
        for key, value in low.items():
            paths = (*at_low, key), (*at_high, key), (*to, key)
            if key not in high:
                found[key] = _copied(self._low, paths[0], value, self._result, paths[2])
            elif high[key] is not None:
                found[key] = self.values(value, high[key], *paths)
        for key, value in high.items():
            if key not in low:
                found[key] = _copied(self._high, (*at_high, key), value, self._result, (*to, key))
        return found

    def _matched(self, low: list[object], high: list[object], to: Place, key: str) -> list[Any]:
        _copy_place(self._high, to, self._result, to)
        above: dict[int, int] = {}                      # place below -> place above of what is merged into it
        known = {_known_by(entry, key): i for i, entry in enumerate(low)            # the last one wins
                 if _known_by(entry, key) is not None}
        for j, entry in enumerate(high):
            i = known.get(_known_by(entry, key))
            if i is not None and i not in above:
                above[i] = j
        found = [self.values(entry, high[above[i]], (*to, i), (*to, above[i]), (*to, i)) if i in above else
                 _copied(self._low, (*to, i), entry, self._result, (*to, i)) for i, entry in enumerate(low)]
        for j, entry in enumerate(high):
            if j not in above.values():
                found.append(_copied(self._high, (*to, j), entry, self._result, (*to, len(found))))
        return found


def _known_by(entry: object, key: str) -> str | None:
    """The text by which an entry of such a list is known."""
    text = entry.get(key) if isinstance(entry, dict) else None
    return " ".join(text.split()) if isinstance(text, str) else None


def _copied(source: Source, at: Place, value: object, result: Source, to: Place) -> object:
    """A value and all below it, with their lines, from `at` of one source to `to` of another."""
    _copy_place(source, at, result, to)
    if isinstance(value, dict):
        return {key: _copied(source, (*at, key), below, result, (*to, key)) for key, below in value.items()}
    if isinstance(value, list):
        return [_copied(source, (*at, i), below, result, (*to, i)) for i, below in enumerate(value)]
    return value


def _copy_place(source: Source, at: Place, result: Source, to: Place) -> None:
    """Copy the line, text and file of one place, without those of places below it."""
    for known, into in ((source.lines, result.lines), (source.written, result.written), (source.files, result.files)):
        if at in known:
            into[to] = known[at]            # type: ignore[assignment]
