"""Data sets, partitions, models and objectives by name: those that come along, and those of users.

A user's stand in a module that is given with `--plugin`, in a dictionary {name: function}, or are entry points of an
installed package:

    DATA        `emul.data`         (options of the scenario) -> arrays
    PARTITIONS  `emul.partitions`   (targets, columns, clients, value, rng) -> an array of indices for each client
    MODELS      `emul.models`       (input_shape, outputs) -> torch.nn.Module
    OBJECTIVES  `emul.objectives`   (**options) -> Objective

docs/own-task.md explains each with an example.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from emul.base.errors import InputError
from emul.base.plain import PlainDict
from emul.base.tracebacks import one_line


class PluginError(InputError):
    """A module that is given with `--plugin` cannot be imported, or what it offers is not what it should be."""


@dataclass(frozen=True)
class Kind:
    """A kind of things that users may bring."""

    what: str                               # as an error names it
    attribute: str                          # of a module
    group: str                              # of entry points


DATA = Kind("data set", "DATA", "emul.data")
PARTITION = Kind("partition", "PARTITIONS", "emul.partitions")
MODEL = Kind("model", "MODELS", "emul.models")
OBJECTIVE = Kind("objective", "OBJECTIVES", "emul.objectives")
KINDS = (DATA, PARTITION, MODEL, OBJECTIVE)


def unknown(what: str, known: Iterable[str], name: str, show_name: bool = True) -> str:
    """Say that `name` is no `what`, with the nearest of the `known` ones, or with all of them if none is near.

    >>> unknown("model", ["digits_cnn", "logistic"], "digit_cnn")
    'unknown model "digit_cnn"; did you mean "digits_cnn"?'
    """
    known = sorted(known)
    said = f'unknown {what} "{name}"' if show_name else f"unknown {what}"
    near = get_close_matches(name, known, n=1)
    if near:
        return f'{said}; did you mean "{near[0]}"?'
    return f"{said}; known are {', '.join(known)}"


def with_options(spec: object) -> tuple[str, PlainDict] | None:
    """Name and options of what a scenario writes as `name` or `{name: {option: value}}`; None: it is neither.

    >>> with_options("logistic"), with_options({"transformer": {"blocks": 5}}), with_options(5)
    (('logistic', {}), ('transformer', {'blocks': 5}), None)
    """
    if isinstance(spec, str):
        return spec, {}
    if isinstance(spec, Mapping) and len(spec) == 1:
        (name, options), = spec.items()
        if isinstance(name, str) and isinstance(options, Mapping | None):
            return name, dict(options or {})
    return None


def names(kind: Kind, built_in: Iterable[str], plugins: Sequence[str] = ()) -> list[str]:
    """Every name that a scenario may use. Plug-ins are imported, entry points are not. Raises PluginError."""
    found = {*built_in, *_entry_points(kind.group)}
    for module in plugins:
        found |= set(offered(kind, module))
    return sorted(found)


def find(kind: Kind, name: str, plugins: Sequence[str] = ()) -> Callable[..., Any] | None:
    """The thing that a plug-in or else an installed package offers as `name`; None: nobody does. Raises PluginError."""
    for module in plugins:
        if name in (own := offered(kind, module)):
            return own[name]
    if name not in _entry_points(kind.group):
        return None
    points = sorted(entry_points(group=kind.group, name=name), key=lambda point: point.value)
    return points[0].load() if points else None


def offered(kind: Kind, module: str) -> dict[str, Callable[..., Any]]:
    """The things of a kind that a module given with `--plugin` offers: {name: function}. Raises PluginError."""
    own = getattr(imported(module), kind.attribute, {})
    if not isinstance(own, dict) or not all(isinstance(name, str) and callable(made) for name, made in own.items()):
        raise PluginError(f'plug-in "{module}": expected {kind.attribute} = {{"name": function}}, found '
                          f"{own!r}"[:300])
    return own


_added: set[str] = set()            # folders that `add_folder_of` has put on the path of modules


def add_folder_of(plugin: str, folder: Path | None = None) -> None:
    """Have modules looked for in `folder`, by default the current one, if this plug-in lies there.

    Nothing is imported from there before a plug-in is named: a file beside a scenario may have the name of any module
    that Python, torch or pandas look for. The folder comes last, so that such a file does not take the place of theirs.
    Raises PluginError: the plug-in is no name of a module, or has the name of another one.
    """
    if wrong := no_module(plugin):
        raise PluginError(wrong)
    top, folder = plugin.partition(".")[0], (folder or Path()).resolve()
    file = next((path for path in (folder / top / "__init__.py", folder / f"{top}.py") if path.is_file()), None)
    specs = (finder.find_spec(top, None) for finder in sys.meta_path)       # whatever was imported under this name
    spec = next((one for one in specs if one is not None), None)
    if spec is None and (file is not None or (folder / top).is_dir()):
        _added.add(str(folder))
        sys.path.append(str(folder))
    if spec is None or file is None:
        return                                  # it is installed, or is nowhere, which its import will tell
    origin = Path(spec.origin or "").resolve() if spec.has_location else folder / top
    if top not in sys.stdlib_module_names and origin.is_relative_to(folder):
        return
    other = str(origin.parent if spec.submodule_search_locations is None else origin.parent.parent)
    if other not in _added:
        whose = "of Python's own library" if top in sys.stdlib_module_names else str(origin)
        raise PluginError(f'plug-in "{plugin}": {file} has the name of another module, {whose}: rename it')
    _added.remove(other)                        # in a notebook that has gone to another folder the newest one counts
    sys.path[:] = [path for path in sys.path if path != other]
    add_folder_of(plugin, folder)


def imported(module: str) -> ModuleType:
    """The module of a plug-in. Raises PluginError if it cannot be imported."""
    add_folder_of(module)
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:    # a user's module may raise anything, or end, while it is imported
        if is_missing(module, error):
            raise PluginError(f'plug-in "{module}" cannot be imported: {error}; it is looked for in the folder that '
                              "emul is started in, and among installed packages") from error
        raise PluginError(f'plug-in "{module}" cannot be imported: {one_line(error)}') from error


def is_missing(module: str, error: BaseException) -> bool:
    """True if the import of `module` failed because there is no such module, and not in a line of the module."""
    return isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}.")


def no_module(plugin: str) -> str:
    """The mistake in a plug-in that is the name of a file; "" if it may be that of a module.

    >>> no_module("./mine.py"), no_module("package.mine")
    ('--plugin ./mine.py: expected the name of a module, such as mine, and no file', '')
    """
    if all(part.isidentifier() for part in plugin.split(".")) and not plugin.endswith(".py"):
        return ""
    module = plugin.removesuffix(".py").replace("/", ".").strip(".")
    return f"--plugin {plugin}: expected the name of a module, such as {module}, and no file"


@cache
def _entry_points(group: str) -> tuple[str, ...]:
    """Names that installed packages offer; nothing is imported. Looked up once: it takes 10 ms."""
    return tuple(sorted({point.name for point in entry_points(group=group)}))
