"""Flower apps as files: what an app folder says, and its ServerApp and ClientApp, loaded anew for every run.

A folder as `flwr new` makes it holds a pyproject.toml:

    [tool.flwr.app.components]      serverapp = "package.server_app:app", clientapp = "package.client_app:app"
    [tool.flwr.app.config]          defaults of the app's run config
"""

from __future__ import annotations

import builtins
import datetime
import importlib
import importlib.abc
import importlib.util
import logging
import os
import random
import re
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Literal

import numpy as np

from emul.base.errors import EmulError
from emul.base.files import read_text
from emul.base.plain import PlainMapping
from emul.schemes.flower import clock, randomness
from emul.schemes.flower.current import AppClock, Entropy, Running, run_as
from emul.schemes.flower.randomness import aside

_log = logging.getLogger(__name__)

Side = Literal["server", "client"]
MISSING = "Flower is not installed: pip install 'emul[flower]'"
# its imports where apps run, as far as emul itself does not need them: module -> package. The extra `flower` brings
# them; an environment in which Flower was installed without its dependencies (`--no-deps`) may lack some.
_NEEDED = {"google.protobuf": "protobuf", "grpc": "grpcio", "grpc_health": "grpcio-health-checking",
           "iterators": "iterators", "Crypto": "pycryptodome", "httpx": "httpx"}
_COMPONENTS: dict[Side, str] = {"server": "serverapp", "client": "clientapp"}


class AppError(EmulError):
    """A Flower app is not where it should be, or not what it should be."""


@dataclass(frozen=True)
class App:
    """The place of an app. folder: its modules are looked for there first; None: they are importable."""

    server: str                         # "package.module:attribute"
    client: str
    folder: Path | None = None
    config: Mapping[str, bool | int | float | str] = field(default_factory=dict)    # flat: keys are joined by dots


def installed() -> bool:
    """True if there is a Flower; it is not imported."""
    return importlib.util.find_spec("flwr") is not None


def lacking() -> str:
    """The packages that Flower needs and that are not installed, with the remedy; "": nothing. Nothing is imported."""
    packages = [package for module, package in _NEEDED.items() if not _there(module)]
    return f"Flower needs {', '.join(packages)}: pip install 'emul[flower]'" if packages else ""


def _there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:         # the package above it is missing
        return False


def not_installed(app: str | None) -> list[str]:
    """The packages that the pyproject.toml of an app's folder asks for and that are not installed. Raises AppError.

    Conditional ones ("tomli; python_version < '3.11'") are left out, and so are versions: what is installed counts.
    """
    if app is None:
        return []
    project = _project(_folder(app)).get("project")
    asked = project.get("dependencies") if isinstance(project, dict) else None
    if not isinstance(asked, list):
        return []
    names = [found[0] for text in map(str, asked) if ";" not in text and (found := re.match(r"[\w.-]+", text.strip()))]
    return [name for name in names if name != "flwr" and not _installed(name)]


def _installed(package: str) -> bool:
    try:
        return bool(metadata.version(package))
    except metadata.PackageNotFoundError:
        return False


def find(app: str | None, server: str | None, client: str | None, config: PlainMapping) -> App:
    """The app in a folder, or beside a package, with parts and values of its config replaced. Raises AppError."""
    folder = None if app is None else _folder(app)
    said = {} if folder is None else _said(folder)
    refs: dict[Side, str] = {"server": server or _component(said, "server", folder),
                             "client": client or _component(said, "client", folder)}
    for side, ref in refs.items():
        if not all(ref.partition(":")[::2]):
            raise AppError(f'{side} = "{ref}": expected package.module:attribute')
        if not _is_there(ref.partition(":")[0], folder):
            raise AppError(f'{side} = "{ref}": there is no module {ref.partition(":")[0]}'
                           + ("" if folder is None else f" in {folder}"))
    defaults = _flat(said.get("config", {}))
    given = _flat(config)
    unknown = sorted(given.keys() - defaults.keys()) if folder is not None else []
    if unknown:
        raise AppError(f"config.{unknown[0]}: the app has no such key; its [tool.flwr.app.config] has "
                       f"{', '.join(sorted(defaults)) or 'none'}")
    return App(refs["server"], refs["client"], folder, defaults | given)


def _folder(app: str) -> Path:
    try:
        path = Path(app).expanduser()
        there = path.is_dir()
    except (RuntimeError, ValueError) as e:     # ~nobody, and a null byte
        raise AppError(f'app = "{app}": {e}') from None
    if not there and app.replace(".", "").isidentifier():
        root, *below = app.split(".")           # the spec of a.b would import a
        spec = _spec(root)
        paths = [] if spec is None else [Path(place, *below) for place in spec.submodule_search_locations or ()]
        path = next((p for place in paths for p in (place, place.parent) if (p / "pyproject.toml").is_file()), path)
    if not (path / "pyproject.toml").is_file():
        raise AppError(f'app = "{app}": expected a folder with a pyproject.toml, as `flwr new` makes it, or a package '
                       "beside one")
    return path.resolve()


def _is_there(module: str, folder: Path | None) -> bool:
    """True if a module can be imported, as far as files tell; none is."""
    root, *below = module.split(".")
    place = None if folder is None else folder / root
    if place is None or not (place.is_dir() or place.with_suffix(".py").is_file()):
        return _spec(root) is not None
    path = place.joinpath(*below)
    return path.is_dir() or path.with_name(f"{path.name}.py").is_file()


def _spec(root: str) -> ModuleSpec | None:
    """Of a module without dots; None: there is none of that name."""
    try:
        return importlib.util.find_spec(root)
    except ValueError:                          # no name, or the program's own module
        return None


def _said(folder: Path) -> dict[str, Any]:
    """[tool.flwr.app] of the folder's pyproject.toml."""
    said: Any = _project(folder)
    for key in ("tool", "flwr", "app"):
        said = said.get(key) if isinstance(said, dict) else None
    parts = [said.get(key, {}) for key in ("components", "config")] if isinstance(said, dict) else [None]
    if not all(isinstance(part, dict) for part in parts):
        raise AppError(f"{folder / 'pyproject.toml'}: expected a section [tool.flwr.app.components], as `flwr new` "
                       "writes it")
    return said


def _project(folder: Path) -> PlainMapping:
    """The folder's pyproject.toml."""
    file = folder / "pyproject.toml"
    try:
        return tomllib.loads(read_text(file))
    except OSError as e:
        raise AppError(f"{file}: {e.strerror or e}") from None
    except (ValueError, RecursionError) as e:       # tomllib has no limit on what is nested
        raise AppError(f"{file}: {e}") from None


def _component(said: PlainMapping, side: Side, folder: Path | None) -> str:
    if folder is None:
        raise AppError(f'{side}: missing; expected an `app`, or a {side} such as "package.module:app"')
    found = said.get("components", {}).get(_COMPONENTS[side])
    if not isinstance(found, str):
        raise AppError(f'{folder / "pyproject.toml"}: [tool.flwr.app.components] has no {_COMPONENTS[side]} = '
                       '"package.module:app"')
    return found


def _flat(config: PlainMapping, above: str = "") -> dict[str, bool | int | float | str]:
    found: dict[str, bool | int | float | str] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{above}{key}.")
        elif isinstance(value, (bool, int, float, str)):
            found[above + key] = value
        else:
            raise AppError(f"config.{above}{key} = {value!r}: expected a number, text, true or false")
    return found


class Loaded:
    """The app of one run in one process: its modules are imported anew, so that nothing of an earlier run is left in
    them; its ServerApp and ClientApp share them."""

    _paths: ClassVar[list[str]] = []    # the folder of the last app that this process has loaded: it is on sys.path

    def __init__(self, app: App, seed: int):

        self._app = app
        self._found: dict[Side, object] = {}
        self.told: set[str] = set()         # of exceptions of its ClientApp
        self.broadcast: Any = None          # the last call of the ServerApp (`encoding.SharedCall`)
        os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
        self.globals = Globals(partial(_is_named, app))
        warn_of_hashes()
        clock.install()
        randomness.install()
        _forget_modules(app)
        AppFinder(seed, partial(_owns, app)).install()
        if app.folder is not None:
            for path in self._paths:
                if path in sys.path:
                    sys.path.remove(path)
            self._paths[:] = [str(app.folder)]
            sys.path.insert(0, str(app.folder))
            importlib.invalidate_caches()

    @property
    def config(self) -> dict[str, bool | int | float | str]:
        """The app's run config."""
        return dict(self._app.config)

    def get(self, side: Side) -> Any:
        """The ServerApp or ClientApp. Raises AppError."""
        if side not in self._found:
            self._found[side] = self._load(side)
        return self._found[side]

    def _load(self, side: Side) -> Any:
        try:
            from flwr.clientapp import ClientApp
            from flwr.serverapp import ServerApp
        except ModuleNotFoundError as e:        # of another version of Flower
            raise AppError(f"Flower needs {e.name}, which is not installed") from e

        ref = self._app.server if side == "server" else self._app.client
        module, _, attribute = ref.partition(":")
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError as e:
            if e.name is None or not module.startswith(e.name):
                raise
            raise AppError(f'{side} = "{ref}": there is no module {e.name}') from None
        except SystemExit as e:
            raise AppError(f'{side} = "{ref}": {module} has ended by {e!r} while it was imported') from e
        clock.install()                 # modules that Flower has imported by now take their time from it, too
        for name in attribute.split("."):
            if not hasattr(found, name):
                raise AppError(f'{side} = "{ref}": {module} has no {attribute}')
            found = getattr(found, name)
        expected = ServerApp if side == "server" else ClientApp
        if not isinstance(found, expected):
            raise AppError(f'{side} = "{ref}": expected a {expected.__name__}, found {type(found).__name__}')
        return found


def _owns(app: App, name: str) -> bool:
    """True if a module that is about to be imported by this name is one of the app's."""
    place = None if app.folder is None else app.folder / name.partition(".")[0]
    return _is_named(app, name) or (place is not None and (place.is_dir() or place.with_suffix(".py").is_file()))


def _is_named(app: App, name: str) -> bool:
    """True if a module is the one of a component, or of the same package."""
    own = {ref.partition(":")[0] for ref in (app.server, app.client)}
    roots = {module.partition(".")[0] for module in own} - {"emul"}
    return name in own or name.partition(".")[0] in roots


def _forget_modules(app: App) -> None:
    for name, module in list(sys.modules.items()):
        if _is_named(app, name) or _lies_in(module, app.folder):
            del sys.modules[name]


def _lies_in(module: ModuleType, folder: Path | None) -> bool:
    file = getattr(module, "__file__", None)
    if folder is None or not file or not Path(file).is_relative_to(folder):
        return False
    return "site-packages" not in file          # an environment within the folder


# --- state that clients of one worker share though they should not --------------------------------------------------
# The worker's seed of hashes, and globals of the app's modules. Neither can be mended here, so it is said once, as a
# warning.

_CALLS = 8                          # of clients that are looked at: who counts does so from the first one on


@cache
def warn_of_hashes() -> None:
    """Warn if this process was started with another seed of hashes than workers are."""
    if sys.flags.hash_randomization:
        _log.warning("this process hashes text by a seed of its own: an app that uses hash() or the order of a set "
                     "gives other results each time. Start it with PYTHONHASHSEED=0, or run the app in workers "
                     "(--workers 1)")


class Globals:
    """The globals of an app's modules, while its clients are called. owns: whether a module is one of the app's."""

    def __init__(self, owns: Callable[[str], bool]):
        self._owns = owns
        self._calls = 0
        self._told: set[str] = set()

    def before(self) -> dict[str, object]:
        """Their values before a call; {}: nobody looks any more."""
        self._calls += 1
        return self._marks() if self._calls <= _CALLS else {}

    def after(self, before: dict[str, object]) -> None:
        """Say which of them a call has changed."""
        now = self._marks() if before else {}
        for name in sorted(name for name, mark in before.items() if now.get(name, mark) != mark):
            if name not in self._told:
                self._told.add(name)
                _log.warning("the ClientApp has changed the global %s: clients that run in one worker share it, so "
                             "results depend on how many workers there are. What a client keeps belongs into "
                             "context.state", name)

    def _marks(self) -> dict[str, object]:
        """The values that are compared: numbers and text, the lengths of lists, and the positions of generators."""
        return {f"{module}.{name}": _mark(value) for module, found in list(sys.modules.items()) if self._owns(module)
                for name, value in list(vars(found).items()) if type(value) in _MARKS}


def _mark(value: object) -> object:
    return _MARKS[type(value)](value)


def _of_numpy(generator: np.random.Generator) -> str:
    return repr(generator.bit_generator.state)


_MARKS: dict[type, Callable[[Any], object]] = {
    bool: bool, int: int, float: repr, str: str, list: len, random.Random: random.Random.getstate,
    np.random.Generator: _of_numpy, np.random.RandomState: lambda generator: repr(generator.get_state())}


# --- the import of an app's modules: each as if it were the first thing that the app does ---------------------------
# A module draws from a stream of its own, at virtual time 0, whoever imports it and when: workers import them in
# another order for another number of workers. And for it `datetime` is `emul.schemes.flower.clock.DATETIME`.

class AppFinder(importlib.abc.MetaPathFinder):
    """Finds the modules of one app, until there is another one. owns: whether a module of this name is one of them."""

    _newest: ClassVar[AppFinder | None] = None

    def __init__(self, seed: int, owns: Callable[[str], bool]):
        self._seed, self._owns = seed, owns

    def install(self) -> None:
        """From now on modules are imported by this one."""
        if AppFinder._newest in sys.meta_path:
            sys.meta_path.remove(AppFinder._newest)
        AppFinder._newest = self
        sys.meta_path.insert(0, self)

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None,
                  ) -> ModuleSpec | None:
        found = PathFinder.find_spec(fullname, path, target) if self._owns(fullname) else None
        if found is not None and type(found.loader) is SourceFileLoader:
            found.loader = _Loader(fullname, found.loader.path, self._seed)
        return found


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, seed: int):
        super().__init__(fullname, path)
        self._seed = seed

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__builtins__"] = {**vars(builtins), "__import__": _import}
        entropy = Entropy(self._seed, "module", module.__name__)
        with aside(self._seed, "module", module.__name__), run_as(Running(0, AppClock(0, _do_nothing),
                                                                          entropy=entropy)):
            super().exec_module(module)


def _import(name: str, *how: Any, **more: Any) -> Any:
    """`import`, as modules of an app have it."""
    module = builtins.__import__(name, *how, **more)
    return clock.DATETIME if module is datetime else module


def _do_nothing(seconds: float) -> None:
    """`sleep` while a module is imported: it takes no time."""
