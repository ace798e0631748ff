"""The schemes: one file each, found by its name.

`find("fedavg")` is the module `emul.schemes.fedavg`; schemes of users come by entry points (group `emul.schemes`) or
by `--plugin package.module`. A module exports `Params`, its role coroutines, `ROLES`, and in `MESSAGES` the types of
all messages that these send, its own and those of the protocols that it uses; optionally `PLACES`, `WITHOUT(params)`,
`DECIDES`, `KNOWS_TOPOLOGY`, `BEHAVIOURS`, `HONEST`, `STATELESS`, `OBLIVIOUS`, `LINKS`, `DETERMINISTIC`,
`check(params, world)`, `analysis(params, setting, run)`.

A scheme that is another one with some parameters fixed is a *variant*: a file that says so and no more.

    VARIANT_OF = "fair_seccogc"         # whose messages, roles and equations it has
    FIXED = {"lambda_": 0.0}            # a scenario cannot set these
    DEFAULTS = {"keys": "dealer"}       # optional: other defaults
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import importlib
import pkgutil
import typing
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

from emul.base.errors import EmulError
from emul.learning.names import no_module
from emul.roles.places import default_place, wrong_place
from emul.wire import Message

ENTRY_POINTS = "emul.schemes"
_NEEDED = ("Params", "ROLES")


class UnknownScheme(EmulError):
    """No scheme has this name; `nearest` is the likeliest one meant, or None."""

    def __init__(self, name: str, known: Sequence[str]):
        close = difflib.get_close_matches(name, known, 1)
        self.nearest = close[0] if close else None
        hint = f'; did you mean "{self.nearest}"?' if self.nearest else f"; known: {', '.join(known)}"
        super().__init__(f'unknown scheme "{name}"{hint}{plugin_hint(name)}')


def plugin_hint(name: str) -> str:
    """What to say of a name that may be that of a module of the user; "" where no such file lies here."""
    return f"; {name}.py lies here: give --plugin {name}" if Path(f"{name}.py").is_file() else ""


class NotAScheme(EmulError):
    """A module lacks what a scheme exports, or cannot be imported."""


def known(plugins: Sequence[str] = ()) -> dict[str, str]:
    """Name -> module of every scheme: ours, those of entry points, those of plug-ins (named by their last part).

    Raises NotAScheme for a plug-in that is the name of a file.
    """
    for plugin in plugins:
        if wrong := no_module(plugin):
            raise NotAScheme(wrong)
    found = {m.name: f"{__name__}.{m.name}" for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")}
    found |= _installed()
    found |= {module.rpartition(".")[2]: module for module in plugins}
    return dict(sorted(found.items()))


@cache
def _installed() -> dict[str, str]:
    """Of the packages installed; to look takes 10 ms."""
    return {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}


def find(name: str, plugins: Sequence[str] = ()) -> ModuleType:
    """The scheme's module. Raises UnknownScheme, or NotAScheme for a module that cannot be one."""
    if name in _lent:
        return _lent[name]
    modules = known(plugins)
    if name not in modules:
        raise UnknownScheme(name, list(modules))
    try:
        module = importlib.import_module(modules[name])
    except ImportError as e:
        where = f"; a plug-in lies in {Path.cwd()}, or is installed" if modules[name] in plugins else ""
        raise NotAScheme(f'scheme "{name}" ({modules[name]}) cannot be imported: {e}{where}') from e
    if hasattr(module, "VARIANT_OF"):
        return _variant(module, _base(name, module, plugins))
    missing = [n for n in _NEEDED if not hasattr(module, n)]
    if missing:
        raise NotAScheme(f'scheme "{name}" ({modules[name]}) lacks {" and ".join(missing)}')
    wrong = _wrong_roles(module) or _wrong_messages(module)
    if wrong:
        raise NotAScheme(f'scheme "{name}" ({modules[name]}): {wrong}')
    return module


def _wrong_roles(module: ModuleType) -> str:
    """What is wrong with the constants that name roles; "" if nothing is."""
    for constant in ("STATELESS", "PLACES"):
        strange = [role for role in getattr(module, constant, ()) if role not in module.ROLES]
        if strange:
            return f"has no role {', '.join(strange)}, which {constant} names"
    wrong = ((role, place, wrong_place(place)) for role, place in getattr(module, "PLACES", {}).items())
    return next((f'PLACES["{role}"] = {place!r}: {text}' for role, place, text in wrong if text), "")


def message_names(module: ModuleType) -> list[str]:
    """The names of all messages that a scheme sends."""
    return [kind.__name__ for kind in getattr(module, "MESSAGES", ())]


def _wrong_messages(module: ModuleType) -> str:
    """What is wrong with `MESSAGES`; "": nothing."""
    listed = getattr(module, "MESSAGES", ())
    strange = [kind for kind in listed if not (isinstance(kind, type) and issubclass(kind, Message))]
    if strange:
        return f"MESSAGES lists {strange[0]!r}: expected types of messages"
    names = [kind.__name__ for kind in listed]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        return f"MESSAGES lists two types called {', '.join(twice)}: receivers tell types by their names"
    # its own: what another listed type inherits from is never sent itself
    own = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, Message)
           and kind.__module__ == module.__name__ and not any(issubclass(other, kind) for other in listed)]
    if own:
        return (f"it defines {', '.join(kind.__name__ for kind in own)}, which MESSAGES does not list: "
                f"write MESSAGES = ({', '.join([*names, *(kind.__name__ for kind in own)])},)")
    return ""


def _base(name: str, module: ModuleType, plugins: Sequence[str]) -> ModuleType:
    """The scheme that a variant is one of. Raises NotAScheme."""
    where = f'scheme "{name}" ({module.__name__}): VARIANT_OF'
    if name == module.VARIANT_OF:
        raise NotAScheme(f'{where} = "{name}": expected another scheme')
    try:
        return find(module.VARIANT_OF, plugins)
    except UnknownScheme as e:
        raise NotAScheme(f"{where}: {e}") from None


@cache
def _variant(module: ModuleType, base: ModuleType) -> ModuleType:
    """The scheme `base` under the parameters that `module` fixes, with whatever else `module` defines in its place."""
    fixed, defaults = getattr(module, "FIXED", {}), getattr(module, "DEFAULTS", {})
    hints = typing.get_type_hints(base.Params, include_extras=True)
    unknown = sorted({*fixed, *defaults} - {f.name for f in dataclasses.fields(base.Params) if f.init})
    if unknown:
        raise NotAScheme(f"{module.__name__}: {module.VARIANT_OF} has no parameter {', '.join(unknown)}")
    fields: list[tuple[str, typing.Any, typing.Any]] = [
        (name, hints[name], dataclasses.field(default=value, init=name not in fixed))
        for name, value in {**defaults, **fixed}.items()]
    made = ModuleType(module.__name__, module.__doc__)
    vars(made).update({name: value for name, value in vars(base).items() if not name.startswith("__")})
    vars(made).update({name: value for name, value in vars(module).items() if not name.startswith("__")})
    made.Params = dataclasses.make_dataclass("Params", fields, bases=(base.Params,), frozen=True)  # type: ignore
    return made


_lent: dict[str, ModuleType] = {}


@contextlib.contextmanager
def lend(name: str, module: ModuleType) -> Iterator[None]:
    """Inside the block `find(name)` is `module`, in this process alone: for roles that no file can be imported for."""
    before = _lent.get(name)
    _lent[name] = module
    try:
        yield
    finally:
        del _lent[name]
        if before is not None:
            _lent[name] = before


def root(module: ModuleType, roles: dict[str, list[int]]) -> int:
    """The first node whose rounds are the run's, where there is one: parents lead to it."""
    return next(iter(deciders(module, roles)), 0)


def places(module: ModuleType, params: typing.Any) -> dict[str, str]:
    """Role -> its place (`emul.roles.places`), of every role that a run with these parameters has.

    PLACES names those that are elsewhere than by default; `WITHOUT(params)` gives the roles that have no node then.
    """
    without = module.WITHOUT(params) if hasattr(module, "WITHOUT") else ()
    return {role: place for role, place in all_places(module).items() if role not in without}


def all_places(module: ModuleType) -> dict[str, str]:
    """Role -> its place, of every role that a scheme has, whatever its parameters are."""
    said = getattr(module, "PLACES", {})
    return {role: said.get(role) or default_place(role) for role in module.ROLES}


def deciders(module: ModuleType, roles: dict[str, list[int]]) -> list[int]:
    """The nodes whose rounds are the run's: DECIDES, by default the servers if there are any, else all.

    DECIDES is a role, a tuple of roles, or a function of {role: nodes} that gives the nodes.
    """
    chosen = getattr(module, "DECIDES", None)
    if callable(chosen):
        return sorted(chosen(roles))
    if chosen is None:
        chosen = ("server",) if roles.get("server") else tuple(roles)
    elif isinstance(chosen, str):
        chosen = (chosen,)
    return sorted(node for role in chosen for node in roles.get(role, []))


def deterministic(module: ModuleType, params: typing.Any) -> bool:
    """Whether a run of the scheme comes out again value by value: DETERMINISTIC, by default True.

    False: it draws randomness of its own, as encryption under CKKS does. It may be a function of the parameters.
    """
    said = getattr(module, "DETERMINISTIC", True)
    return bool(said(params) if callable(said) else said)
