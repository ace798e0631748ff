"""The waits and sizes of a Flower deployment, read by name from the flwr that is installed. Nothing of it is imported.

A number in a call, such as `time.sleep(3)` between two polls of flwr 1.41, is read from the syntax tree of the
function that calls it; one that has a name is read by this name. `read` refuses a version without such a name, and says
which version it is.
"""

from __future__ import annotations

import ast
import importlib.util
import os
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Protocol

from emul.base.errors import EmulError

_NODE = "supernode/start_client_internal.py"
_GRID = "superlink/grid/http_grid.py"
_EXEC = "supercore/superexec/run_superexec.py"
_VCE, _MEMORY = "server/superlink/fleet/vce/vce_api.py", "superlink/grid/inmemory_grid.py"
_SHARED, _COMMON = "supercore/constant.py", "common/constant.py"


class UnknownFlower(EmulError):
    """The installed flwr has no such name, or another value behind it than a number."""


@dataclass(frozen=True)
class Installed:
    """Seconds, bytes and counts of a deployment, as the installed flwr has them."""

    node_poll_s: float              # SuperNode: between two looks for a message
    reply_poll_s: float             # SuperNode: between two looks for its ClientApp's reply
    task_poll_s: float              # SuperExec: between two looks for a task
    server_poll_s: float            # ServerApp: between two looks for replies in `send_and_receive`
    pushes: int                     # objects that are pushed at a time, a request each
    pulls: int                      # objects that are pulled at a time
    chunk_bytes: int                # of an array, an object each
    heartbeat_s: float              # that a SuperNode tells the SuperLink
    heartbeat_call_s: float         # limit of one heartbeat's request
    heartbeat_part: float           # of heartbeat - call, which a SuperNode waits between two, in the mean
    heartbeat_range: float          # by so much it is drawn less or more
    patience: int                   # heartbeats; after so many without one a node is offline, a process has died
    retry_most_s: float             # between two tries of a request, at most; it doubles from 1 s on
    limit_s: float                  # of a request
    unavailable_s: float            # before an object that is not there yet is asked for again; it doubles
    unavailable_most_s: float
    session_s: float                # for which the SuperLink keeps a reply without the rest of its objects

    @property
    def between_beats_s(self) -> float:
        """Seconds from one heartbeat of a SuperNode to the next, in the mean."""
        return (self.heartbeat_s - self.heartbeat_call_s) * self.heartbeat_part


@dataclass(frozen=True)
class Simulation:
    """Seconds of the simulation engine, as the installed flwr has them."""

    look_s: float                   # between two looks for messages that go to actors
    server_poll_s: float            # ServerApp: between two looks for replies in `send_and_receive`


class GivenWaits(Protocol):
    """Parameters of the scheme `flower` that take the place of a value."""

    @property
    def node_poll_s(self) -> float | None: ...
    @property
    def reply_poll_s(self) -> float | None: ...
    @property
    def task_poll_s(self) -> float | None: ...
    @property
    def server_poll_s(self) -> float | None: ...
    @property
    def heartbeat_s(self) -> float | None: ...


@cache
def read() -> Installed:
    """The values of the installed version. Raises UnknownFlower."""
    named, slept = _constant, _slept
    low, high = _numbers(_COMMON, "HEARTBEAT_RANDOM_RANGE", 2)
    if low != -high:
        raise _unknown(_COMMON, "HEARTBEAT_RANDOM_RANGE, symmetric")
    return Installed(
        node_poll_s=slept(_NODE, "start_client_internal"), reply_poll_s=slept(_NODE, "_push_messages"),
        task_poll_s=named(_EXEC, "_DEFAULT_TASK_POLL_INTERVAL_SECONDS"),
        server_poll_s=slept(_GRID, "send_and_receive"),
        pushes=int(named(_SHARED, "FLWR_PRIVATE_MAX_CONCURRENT_OBJ_PUSHES")),
        pulls=int(named(_SHARED, "FLWR_PRIVATE_MAX_CONCURRENT_OBJ_PULLS")),
        chunk_bytes=int(named(_COMMON, "FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE")),
        heartbeat_s=named(_COMMON, "HEARTBEAT_DEFAULT_INTERVAL"),
        heartbeat_call_s=named(_COMMON, "HEARTBEAT_CALL_TIMEOUT"),
        heartbeat_part=named(_COMMON, "HEARTBEAT_BASE_MULTIPLIER"), heartbeat_range=high,
        patience=int(named(_COMMON, "HEARTBEAT_PATIENCE")), retry_most_s=named(_COMMON, "MAX_RETRY_DELAY"),
        limit_s=_default("supercore/protobuf/client.py", "__init__", "timeout"),
        unavailable_s=named(_SHARED, "PULL_INITIAL_BACKOFF"), unavailable_most_s=named(_SHARED, "PULL_BACKOFF_CAP"),
        session_s=named(_SHARED, "OBJECT_PUSH_SESSION_TTL_SECONDS"))


def waits(p: GivenWaits) -> Installed:
    """The values of the installed version, with what the parameters of the scheme `flower` say in their places."""
    own = {name: value for name in ("node_poll_s", "reply_poll_s", "task_poll_s", "server_poll_s", "heartbeat_s")
           if (value := getattr(p, name)) is not None}
    return replace(read(), **own)


def simulation(p: GivenWaits) -> Simulation:
    """The values of the installed version, with those that the parameters say in their places. Raises UnknownFlower."""
    poll_s = _default(_MEMORY, "__init__", "pull_interval") if p.server_poll_s is None else p.server_poll_s
    return Simulation(_slept(_VCE, "add_messages_to_queue", "wait"), poll_s)


def version() -> str:
    """The version of the installed flwr."""
    return metadata.version("flwr")


def _unknown(file: str, what: str) -> UnknownFlower:
    return UnknownFlower(f"flwr {version()}: {file} has no {what}; the runtimes superlink and simulation know "
                         "flwr 1.41 and 1.42 (pip install 'flwr>=1.41,<1.43')")


@cache
def _tree(file: str) -> ast.Module:
    spec = importlib.util.find_spec("flwr")
    if spec is None or spec.origin is None:
        raise UnknownFlower("Flower is not installed: pip install 'emul[flower]'")
    path = Path(spec.origin).parent / file
    if not path.is_file():
        raise _unknown(file, "text: there is no such file")
    return ast.parse(path.read_text(encoding="utf-8"))


def _function(file: str, name: str) -> ast.FunctionDef:
    """The first function or method of this name."""
    for node in ast.walk(_tree(file)):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
    raise _unknown(file, f"function {name}")


def _slept(file: str, function: str, call: str = "sleep") -> float:
    """The number in the first call of `time.sleep` in a function, or of another name; `self.NAME` is no number."""
    for node in ast.walk(_function(file, function)):
        if (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == call
                and node.args and (found := _number(node.args[0])) is not None):
            return found
    raise _unknown(file, f"{call}(number) in {function}")


def _default(file: str, function: str, parameter: str) -> float:
    """The default of a parameter."""
    of = _function(file, function).args
    named = [*of.posonlyargs, *of.args]
    for args, defaults in ((named[len(named) - len(of.defaults):], of.defaults), (of.kwonlyargs, of.kw_defaults)):
        for arg, default in zip(args, defaults, strict=True):
            if arg.arg == parameter and default is not None and (found := _number(default)) is not None:
                return found
    raise _unknown(file, f"number as the default of {parameter} in {function}")


def _constant(file: str, name: str) -> float:
    """A module's constant: a number, or `int(os.getenv(NAME, "number"))`, which the environment decides."""
    found = _number(_assigned(file, name))
    if found is None:
        raise _unknown(file, f"number {name}")
    return found


def _numbers(file: str, name: str, count: int) -> list[float]:
    value = _assigned(file, name)
    found = [_number(one) for one in value.elts] if isinstance(value, ast.Tuple) else []
    numbers = [one for one in found if one is not None]
    if len(numbers) != count or len(found) != count:
        raise _unknown(file, f"{count} numbers {name}")
    return numbers


def _assigned(file: str, name: str) -> ast.expr:
    for node in _tree(file).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                return node.value
    raise _unknown(file, f"constant {name}")


def _number(value: ast.expr) -> float | None:
    if isinstance(value, ast.Constant) and isinstance(value.value, int | float):
        return float(value.value)
    if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub):
        found = _number(value.operand)
        return None if found is None else -found
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "int" and value.args:
        return _environment(value.args[0])
    return None


def _environment(value: ast.expr) -> float | None:
    """`os.getenv(NAME, "number")`."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "getenv" and len(
            value.args) == 2 and all(isinstance(arg, ast.Constant) for arg in value.args):
        name, default = (str(ast.literal_eval(arg)) for arg in value.args)
        return float(os.environ.get(name, default))
    return None
