"""Arguments of the functions that `import emul` offers, looked at before anything is read: a wrong one is named.

    require(workers=workers, out=out)       TypeError: workers = "two": expected a number of processes, ...
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from emul.scenario import Scenario
from emul.scenario.wording import shown


@dataclass(frozen=True)
class ArgumentKind:
    """The values that an argument may have. fits: whether its type is right; holds: whether a value of this type is."""

    expected: str
    fits: Callable[[Any], bool]
    holds: Callable[[Any], bool] = lambda value: True


def require(**given: object) -> None:
    """Raise TypeError or ValueError, naming each argument that is wrong, what was found and what is expected."""
    unfit = {name for name, value in given.items() if not _KINDS[name].fits(value)}
    wrong = [name for name, value in given.items() if name in unfit or not _KINDS[name].holds(value)]
    if wrong:
        said = "\n".join(f"{name} = {_shown(given[name])}: expected {_KINDS[name].expected}" for name in wrong)
        raise TypeError(said) if unfit else ValueError(said)


def plain(number: int | None) -> int | None:
    """Python's own whole number, of one that may be NumPy's; None: None."""
    return None if number is None else operator.index(number)


def _shown(value: Any) -> str:
    return repr(value) if value is None or isinstance(value, bool) else shown(value)


def _is_empty(value: object) -> bool:
    return isinstance(value, Collection) and len(value) == 0


def _is_path(value: object) -> bool:
    return isinstance(value, (str, os.PathLike))


def _is_whole(value: Any) -> bool:
    """A number without a fraction, NumPy's included; True and False are none."""
    try:
        operator.index(value)
    except TypeError:
        return False
    return not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    try:
        return not isinstance(value, (bool, str)) and float(value) == float(value)
    except (TypeError, ValueError):
        return False


def _are_names(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, Collection) and not isinstance(value, (bytes, Mapping))
                                      and all(isinstance(name, str) for name in value))


def _or_none(fits: Callable[[object], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or fits(value)


_PATH_OR_NONE = ArgumentKind("a path, or None", _or_none(_is_path))
_KINDS = {
    "scenario": ArgumentKind("a path, a mapping or a Scenario",
                             lambda value: _is_path(value) or isinstance(value, (Mapping, Scenario))),
    "schemes": ArgumentKind("labels or names of schemes, one at least; None: all", _or_none(_are_names),
                            lambda value: value is None or not _is_empty(value)),
    "scheme": ArgumentKind("the label or name of a scheme; None: all", _or_none(lambda value: isinstance(value, str))),
    "workers": ArgumentKind("a number of processes, 0 or more (0: none, everything in this process); None: one a core",
                            _or_none(_is_whole), lambda value: value is None or value >= 0),
    "networks": ArgumentKind("names of networks, one at least; None: all", _or_none(_are_names),
                             lambda value: value is None or not _is_empty(value)),
    "task": ArgumentKind("the name of a task, or a path", _is_path),
    "baseline": ArgumentKind("the label of a scheme; None: the first", _or_none(lambda value: isinstance(value, str))),
    "set": ArgumentKind('changes by path such as {"stop.rounds": 5}', lambda value: isinstance(value, Mapping)),
    "plugins": ArgumentKind("the name of a module, or a list of names", _or_none(_are_names)),
    "grid": ArgumentKind('lists of values by path such as {"links[1].outage.p": [0.1, 0.3]}; None: the scenario\'s',
                         _or_none(lambda value: isinstance(value, Mapping))),
    "jobs": ArgumentKind("1 or more", _is_whole, lambda value: value >= 1),
    "engine": ArgumentKind("local or ray", lambda value: isinstance(value, str),
                           lambda value: value in ("local", "ray")),
    "on": ArgumentKind('such as "ray:auto"; None: this machine', _or_none(lambda value: isinstance(value, str))),
    "target": ArgumentKind("a number from 0 to 1", _or_none(_is_number),
                           lambda value: value is None or 0 <= value <= 1),
    "size": ArgumentKind('a size such as "1 MB" or "64 KiB"', lambda value: isinstance(value, str)),
    "device": ArgumentKind('cpu, cuda or such as cuda:1', lambda value: isinstance(value, str)),
    "path": ArgumentKind("a path", _is_path),
    "out": _PATH_OR_NONE, "done": _PATH_OR_NONE, "store": _PATH_OR_NONE,
    "quiet": ArgumentKind("True or False", lambda value: isinstance(value, bool)),
    "keep_trainings": ArgumentKind("True or False", lambda value: isinstance(value, bool)),
}
