"""YAML text in, plain values with line numbers out: the strict reading of scenario files.

Accepted is what a person needs and no more: one document of mappings with text keys, lists, text, numbers, true, false
and null, as in YAML 1.2. Tags, anchors, aliases, merge keys and duplicate keys are refused, so that nothing is ever
constructed or multiplied by a file and no value silently replaces another.
"""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, Event, ScalarEvent
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.parser import Parser

from emul.base.errors import Problem
from emul.base.files import read_text
from emul.scenario.wording import Path, place, scenario_error, shown, suffix

MAX_CHARACTERS = 1_000_000
MAX_EVENTS = 100_000                # parsed at 40,000 a second
MAX_DEPTH = 40                      # the reader below recurses; real scenarios stay under 8

_TAG = "tag:yaml.org,2002:"
_INT = re.compile(r"[-+]?(0x[0-9a-fA-F]{1,64}|0o[0-7]{1,64}|[0-9]{1,64})", re.ASCII)


@dataclass
class Source:
    """A file as plain values. `lines` (1-based), `written` (the place as the user wrote it) and `files` (what a value
    comes from, where that is another file) are keyed by path."""

    tree: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    written: dict[Path, str] = field(default_factory=dict)
    files: dict[Path, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def problem(self, path: Path, found: str, expected: str) -> None:
        """Add a problem at `path`, with the line of the nearest enclosing thing that has one."""
        self.problems.append(self.at(path, found, expected))

    def at(self, path: Path, found: str, expected: str) -> Problem:
        """The problem at `path`; a value that came by --set has that in the place of a line."""
        for i in range(len(path), -1, -1):
            head = path[:i]
            if head in self.written:
                return Problem(self.written[head] + suffix(path[i:], "" if i else None), found, expected,
                               self.lines.get(head), self.files.get(head, ""))
            if head in self.lines:
                return Problem(place(path), found, expected, self.lines[head], self.files.get(head, ""))
        return Problem(place(path), found, expected)


def text_of(file: pathlib.Path, name: str) -> str:
    """The text of a scenario file. Raises ScenarioError."""
    try:
        return read_text(file, 4 * MAX_CHARACTERS + 4)
    except OSError as error:
        raise scenario_error(name, [Problem("", "", f"{error.strerror or 'unreadable'}: expected a scenario file")]
                             ) from None


def of_values(value: object) -> Source:
    """Values of Python as `read` gives those of a file: mappings, sequences, texts, paths, numbers, also NumPy's."""
    source = Source()
    source.tree = _of_value(value, (), source)
    return source


def _of_value(value: Any, path: Path, source: Source) -> object:
    if len(path) > MAX_DEPTH:
        source.problem(path[:3], "", f"is nested more than {MAX_DEPTH} deep")
        return None
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, (str, int)):
                source.problem(path, shown(str(key)), "expected text as a key")
        return {str(key): _of_value(below, (*path, str(key)), source) for key, below in value.items()}
    if isinstance(value, (list, tuple, range)) or hasattr(value, "tolist"):
        return [_of_value(below, (*path, i), source) for i, below in enumerate(value)]
    source.problem(path, type(value).__name__, "expected text, a number, true, false, a list or a mapping")
    return None


def read(text: str) -> Source:
    """The plain values of one YAML document. Its mistakes are in `problems`, and then `tree` may be partial."""
    source = Source(lines={(): 1})
    if len(text) > MAX_CHARACTERS:
        source.problems.append(Problem("", f"{len(text)} characters", f"expected at most {MAX_CHARACTERS}", 1))
        return source
    try:
        yaml = YAML(typ="safe", pure=True)
        yaml.Parser = partial(_Bounded, source=source)
        node = yaml.compose(text)
        if not source.problems:
            source.tree = None if node is None else _plain(node, (), source)
    except _Unbounded as error:
        source.problems.append(error.problem)
    except YAMLError as error:
        source.problems.append(_syntax(error, text))
    except (ValueError, AttributeError, IndexError, KeyError, TypeError, AssertionError, RecursionError) as error:
        # ruamel raises these on some malformed directives and escapes; for its user they are syntax errors
        source.problems.append(Problem("", type(error).__name__, "is no readable YAML", 1))
    return source


class _Unbounded(Exception):
    def __init__(self, problem: Problem) -> None:
        self.problem = problem


class _Bounded(Parser):
    """The stream of events, without excessive depth or length, looked at before anything recurses over the document. In
    the place of an alias it has an empty value, and the problem is noted."""

    def __init__(self, loader: YAML, source: Source) -> None:
        super().__init__(loader=loader)
        self._source, self._count, self._depth = source, 0, 0

    def check_event(self, *choices: type[Event]) -> bool:
        self._look()
        return bool(super().check_event(*choices))

    def peek_event(self) -> Event:
        self._look()
        return super().peek_event()

    def get_event(self) -> Event:
        self._look()
        return super().get_event()

    def _look(self) -> None:
        if self.current_event is not None or not self.state:
            return
        event = self.state()
        line = event.start_mark.line + 1
        if isinstance(event, AliasEvent):
            self._source.problems.append(
                Problem("", f"*{event.anchor}", "aliases are not supported: write the value out", line))
            event = ScalarEvent(None, None, (True, False), "", event.start_mark, event.end_mark)
        self._depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        self._count += 1
        if self._count > MAX_EVENTS:
            raise _Unbounded(Problem("", "", f"has more than {MAX_EVENTS:,} entries", line))
        if self._depth > MAX_DEPTH:
            raise _Unbounded(Problem("", "", f"is nested more than {MAX_DEPTH} deep", line))
        self.current_event = event


def _syntax(error: YAMLError, text: str) -> Problem:
    line, said = 1, str(getattr(error, "reason", "")) or "unreadable"
    if isinstance(error, MarkedYAMLError):
        # a key without a colon is noticed in a line below it
        keyless = error.context_mark if "':'" in (error.problem or "") else None
        mark = keyless or error.problem_mark or error.context_mark
        # ruamel puts the end of the text one line below the last one
        line = min(mark.line, max(len(text.splitlines()) - 1, 0)) + 1 if mark else 1
        said = " ".join(str(t) for t in (error.context, error.problem) if t)
        said += ": indent with spaces" if "\\t" in said else ""
    elif isinstance(position := getattr(error, "position", None), int):
        line = text[:position].count("\n") + 1
    return Problem("", "", "is no valid YAML: " + " ".join(said.split()), line)


def _plain(node: Node, path: Path, source: Source) -> Any:
    source.lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, MappingNode) and node.tag == _TAG + "map":
        return _mapping(node, path, source)
    if isinstance(node, SequenceNode) and node.tag == _TAG + "seq":
        return [_plain(item, (*path, i), source) for i, item in enumerate(node.value)]
    if isinstance(node, ScalarNode):
        return _scalar(node, path, source)
    source.problem(path, str(node.tag), "tags are not supported")
    return None


def _mapping(node: MappingNode, path: Path, source: Source) -> dict[str, object]:
    result: dict[str, object] = {}
    first: dict[str, int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if key.tag == _TAG + "merge":
            source.problems.append(Problem(place(path), "<<", "merge keys are not supported: write the keys out", line))
        elif not isinstance(key, ScalarNode) or key.tag not in (_TAG + "str", _TAG + "int", _TAG + "null"):
            source.problems.append(Problem(place(path), "", "expected text as a key", line))
        elif key.value in result:
            source.problems.append(Problem(place((*path, key.value)), "duplicate key",
                                           f"was given before, in line {first[key.value]}", line))
        else:
            first[key.value] = line
            source.lines[(*path, key.value)] = line
            result[key.value] = _plain(value, (*path, key.value), source)
    return result


def _scalar(node: ScalarNode, path: Path, source: Source) -> object:
    kind, text = str(node.tag).removeprefix(_TAG), node.value
    if kind == "null" and text in ("", "~", "null", "Null", "NULL"):
        return None
    if kind in ("str", "timestamp"):
        return text
    if kind == "bool" and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if kind == "int" and _INT.fullmatch(text.replace("_", "")):
        return int(text.replace("_", ""), 0 if "x" in text or "o" in text else 10)
    if kind == "float":
        try:
            return float(text.replace("_", "").replace(".inf", "inf").replace(".Inf", "inf").replace(".INF", "inf")
                         .replace(".nan", "nan").replace(".NaN", "nan").replace(".NAN", "nan"))
        except ValueError:
            pass
    source.problem(path, shown(text), "expected text, a number, true, false, a list or a mapping")
    return None
