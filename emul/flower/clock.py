"""Virtual time for apps: `time.time()`, `time.sleep()` and their like say and take it while an app runs.

The functions of the module `time` are replaced by ones that ask which app runs in their thread; where none does, they
are the real ones. What has taken them by name before (`from time import sleep`) is given the new ones, too.
"""

from __future__ import annotations

import datetime
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

from emul.base.errors import RoleError

EPOCH_S = 1_767_225_600             # what `time.time()` is at virtual time 0: 2026-01-01 00:00 UTC
_REAL = {name: getattr(time, name) for name in (
    "time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep")}
_WAITING = ("asyncio", "concurrent", "multiprocessing")
_DATES = ("flwr.supercore.date", "flwr.common.date")        # modules of Flower that ask `datetime` for the time


@dataclass
class Clock:
    """The virtual time of one app. sleep: what its `time.sleep` does with a number of seconds."""

    now_ns: int
    sleep: Callable[[float], None]


def created_s(now_ns: int) -> float:
    """What Flower writes as the time of creation of a message."""
    return EPOCH_S + now_ns / 1e9


def install() -> None:
    """Replace the functions, once a process, and what Flower's modules have of them, each time it is called."""
    for name, virtual in _VIRTUAL.items():
        setattr(time, name, virtual)
    for module in [m for name, m in list(sys.modules.items()) if name.partition(".")[0] == "flwr"]:
        _replace(module)


def _replace(module: ModuleType) -> None:
    for name, value in list(vars(module).items()):
        for real, virtual in _VIRTUAL.items():
            if value is _REAL[real]:
                setattr(module, name, virtual)
    if module.__name__ in _DATES and vars(module).get("datetime") is datetime:
        module.datetime = _DATETIME         # type: ignore[attr-defined]


def _app_clock() -> Clock | None:
    from emul.flower.current import running

    app = running()
    return None if app is None else app.clock


def _time() -> float:
    clock = _app_clock()
    return _REAL["time"]() if clock is None else created_s(clock.now_ns)


def _time_ns() -> int:
    clock = _app_clock()
    return _REAL["time_ns"]() if clock is None else EPOCH_S * 10**9 + clock.now_ns


def _seconds(name: str) -> Callable[[], float]:
    def elapsed() -> float:
        clock = _app_clock()
        if clock is None or _for_a_wait():
            return _REAL[name]()
        return clock.now_ns / 1e9
    return elapsed


def _nanoseconds(name: str) -> Callable[[], int]:
    def elapsed() -> int:
        clock = _app_clock()
        return _REAL[name]() if clock is None or _for_a_wait() else clock.now_ns
    return elapsed


def _for_a_wait() -> bool:
    """Whether a library asks that waits in real time until a time that it reckons; else it would wait for ever."""
    return str(sys._getframe(2).f_globals.get("__name__", "")).partition(".")[0] in _WAITING


def _sleep(seconds: float) -> None:
    clock = _app_clock()
    if clock is None:
        _REAL["sleep"](seconds)
    elif not seconds >= 0:
        raise ValueError("sleep length must be non-negative")
    else:
        clock.sleep(float(seconds))


_VIRTUAL: dict[str, Any] = {
    "time": _time, "time_ns": _time_ns, "sleep": _sleep,
    "monotonic": _seconds("monotonic"), "monotonic_ns": _nanoseconds("monotonic_ns"),
    "perf_counter": _seconds("perf_counter"), "perf_counter_ns": _nanoseconds("perf_counter_ns")}


class _Datetime(datetime.datetime):
    """`datetime.datetime`, but for what the time is now."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> _Datetime:
        """The virtual time."""
        return cls.fromtimestamp(_time(), tz)


_DATETIME = SimpleNamespace(**{**vars(datetime), "datetime": _Datetime})


def no_sleep(seconds: float) -> None:
    """`sleep` of an app at a place where no time can pass."""
    raise RoleError(f"time.sleep({seconds}): no time can pass here")
