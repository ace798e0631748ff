"""Schemes by name: those of `emul.schemes`, of installed packages (entry points `emul.schemes`) and of plug-ins."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import importlib
import importlib.util
import logging
import pkgutil
import sys
import typing
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

from emul.base import tracebacks
from emul.base.errors import InputError
from emul.learning.names import add_folder_of, is_missing, no_module
from emul.message.wire import Message
from emul.roles.scheme import AnyScheme, Scheme, Variant

_log = logging.getLogger(__name__)

PACKAGE = "emul.schemes"                # also the group of entry points


_OF_PROGRAMS = {"loop": "emul.loop.scheme"}     # found by name and not listed: no scenario can say what its roles do


class UnknownScheme(InputError):
    """No scheme has this name; `nearest` is the likeliest one meant, or None."""

    def __init__(self, name: str, known: Sequence[str]):
        close = difflib.get_close_matches(name, known, 1)
        self.nearest = close[0] if close else None
        hint = f'; did you mean "{self.nearest}"?' if self.nearest else f"; known: {', '.join(known)}"
        super().__init__(f'unknown scheme "{name}"{hint}{plugin_hint(name)}')


def plugin_hint(name: str) -> str:
    """A hint on a name that may be that of a module of the user; "" where no such file lies here."""
    return f"; {name}.py lies here: give --plugin {name}" if Path(f"{name}.py").is_file() else ""


class NotAScheme(InputError):
    """A module has no sound `SCHEME`, or cannot be imported."""


def known(plugins: Sequence[str] = ()) -> dict[str, str]:
    """Name -> module of every scheme: ours, those of entry points, those of plug-ins (named by their last part).

    Raises NotAScheme for a plug-in that is the name of a file, or that takes the name of one of ours.
    """
    ours = _ours()
    own = {plugin.rpartition(".")[2]: plugin for plugin in plugins}
    for name, plugin in own.items():
        if wrong := no_module(plugin):
            raise NotAScheme(wrong)
        if ours.get(name, plugin) != plugin:
            raise NotAScheme(f'plug-in "{plugin}": emul has a scheme "{name}" of its own: give the module another name')
    return dict(sorted((ours | _installed() | own).items()))


@cache
def _ours() -> dict[str, str]:
    package = importlib.util.find_spec(PACKAGE)
    folders = [] if package is None else list(package.submodule_search_locations or ())
    return {m.name: f"{PACKAGE}.{m.name}" for m in pkgutil.iter_modules(folders) if not m.name.startswith("_")}


@cache
def _installed() -> dict[str, str]:
    """Of the packages installed; to look takes 10 ms. None has the name of one of ours: a package that is installed for
    something else must not change what `fedavg` is."""
    points = entry_points(group=PACKAGE)
    for point in points:
        if point.name in _ours():
            _log.warning('package %s: its scheme "%s" is not used: emul has one of this name', point.dist and
                         point.dist.name, point.name)
    return {point.name: point.value for point in points if point.name not in _ours()}


def find(name: str, plugins: Sequence[str] = ()) -> AnyScheme:
    """The scheme. Raises UnknownScheme, or NotAScheme for a module that cannot be one."""
    if name in _lent:
        return _lent[name]
    modules = _OF_PROGRAMS | known(plugins)
    if name not in modules:
        raise UnknownScheme(name, list(modules))
    where = f'scheme "{name}" ({modules[name]})'
    if modules[name] in plugins:
        add_folder_of(modules[name])
    try:
        module = importlib.import_module(modules[name])
    except (Exception, SystemExit) as e:    # a user's module may raise anything, or end, while it is imported
        if is_missing(modules[name], e):
            there = f"; a plug-in lies in {Path.cwd()}, or is installed" if modules[name] in plugins else ""
            raise NotAScheme(f"{where} cannot be imported: {e}{there}") from e
        raise NotAScheme(f"{where} cannot be imported: {tracebacks.one_line(e)}") from e
    said = getattr(module, "SCHEME", None)
    if isinstance(said, Variant):
        said = _variant(module.__name__, said, _base(name, where, said, plugins))
    if not isinstance(said, Scheme):
        raise NotAScheme(f"{where}: expected SCHEME = Scheme(params=..., roles=...), found "
                         f"{'none' if said is None else type(said).__name__}")
    wrong = said.faults() or _unlisted(module.__name__, said)
    if wrong:
        raise NotAScheme(f"{where}: {wrong}")
    return _named(said, name, module.__name__, module.__doc__ or "")


@cache
def _named(said: AnyScheme, name: str, module: str, doc: str) -> AnyScheme:
    """With its name, module and text."""
    return dataclasses.replace(said, name=name, module=module, doc=doc)


@cache                  # a scheme is found many times in a run; to look through all modules takes 2 ms
def _unlisted(module: str, scheme: Scheme[object]) -> str:
    """The messages that a scheme's module or folder defines and does not list; "": none.

    A type from which another listed type inherits is never sent itself.
    """
    parts = [sys.modules[module]]
    if hasattr(parts[0], "__path__"):
        within = f"{module}."
        parts += [part for name, part in list(sys.modules.items()) if name.startswith(within)]
    own = {kind.__name__: kind for part in parts for kind in vars(part).values()
           if isinstance(kind, type) and issubclass(kind, Message) and kind.__module__ == part.__name__
           and not any(issubclass(other, kind) for other in scheme.messages)}
    if not own:
        return ""
    names = [kind.__name__ for kind in scheme.messages]
    return (f"it defines {', '.join(own)}, which messages does not list: "
            f"write messages=({', '.join([*names, *own])},)")


def _base(name: str, where: str, variant: Variant, plugins: Sequence[str]) -> AnyScheme:
    """The scheme that a variant is one of. Raises NotAScheme."""
    if name == variant.of:
        raise NotAScheme(f'{where}: of = "{name}": expected another scheme')
    try:
        return find(variant.of, plugins)
    except UnknownScheme as e:
        raise NotAScheme(f"{where}: of: {e}") from None


@cache
def _variant(module: str, variant: Variant, base: AnyScheme) -> Scheme[object]:
    """The base under the parameters that the variant fixes. Raises NotAScheme."""
    hints = typing.get_type_hints(base.params, include_extras=True)
    unknown = sorted({*variant.fixed, *variant.defaults} - {f.name for f in dataclasses.fields(base.params) if f.init})
    if unknown:
        raise NotAScheme(f"{module}: {variant.of} has no parameter {', '.join(unknown)}")
    fields: list[tuple[str, object, object]] = [
        (name, hints[name], dataclasses.field(default=value, init=name not in variant.fixed))
        for name, value in {**variant.defaults, **variant.fixed}.items()]
    params = dataclasses.make_dataclass("Params", fields, bases=(base.params,), frozen=True)
    return dataclasses.replace(
        base, of=variant.of, params=params, example=variant.example,
        ideal_links=base.ideal_links if variant.ideal_links is None else variant.ideal_links)


_lent: dict[str, AnyScheme] = {}


@contextlib.contextmanager
def lend(name: str, scheme: Scheme[object]) -> Iterator[None]:
    """Inside the block `find(name)` is `scheme`, in this process alone: for roles that no file can be imported for."""
    before = _lent.get(name)
    _lent[name] = scheme
    try:
        yield
    finally:
        del _lent[name]
        if before is not None:
            _lent[name] = before
