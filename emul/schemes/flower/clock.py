"""Virtual time for apps: `time.time()`, `time.sleep()`, `datetime.now()` and the like, while an app runs.

The functions of the module `time` are replaced by ones that ask which app runs in their thread; where none does, they
are the real ones. Functions that Flower has imported by name before (`from time import sleep`) are replaced there, too.
`datetime` is replaced in modules of Flower and of the app (`AppFinder`). A thread that an app starts is the app's, and
so is what it hands to a pool of threads.
"""

from __future__ import annotations

import contextvars
import datetime
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import FrameType, ModuleType
from typing import Any

from emul.schemes.flower.current import AppClock, running

EPOCH_S = 1_767_225_600             # `time.time()` at virtual time 0: 2026-01-01 00:00 UTC
_SECONDS = ("monotonic", "perf_counter", "process_time", "thread_time")         # and, with _ns, nanoseconds
_REAL: dict[str, Any] = {name: getattr(time, name) for name in (
    "time", "time_ns", "sleep", "clock_gettime", "clock_gettime_ns", "localtime", "gmtime", "ctime", "strftime",
    "asctime", *_SECONDS, *(f"{name}_ns" for name in _SECONDS)) if hasattr(time, name)}
_WAITING = ("asyncio", "concurrent", "multiprocessing")
_DATES = ("flwr.supercore.date", "flwr.common.date")        # modules of Flower that ask `datetime` for the time


def created_s(now_ns: int) -> float:
    """The time of creation that Flower writes into a message."""
    return EPOCH_S + now_ns / 1e9


def install() -> None:
    """Replace the functions, once a process, and what Flower's modules have of them, each time it is called."""
    for name, virtual in _VIRTUAL.items():
        setattr(time, name, virtual)
    threading.Thread.start = _start                             # type: ignore[method-assign]
    ThreadPoolExecutor.submit = _submit                         # type: ignore[method-assign,assignment]
    for module in [m for name, m in list(sys.modules.items()) if name.partition(".")[0] == "flwr"]:
        _replace(module)


def _replace(module: ModuleType) -> None:
    for name, value in list(vars(module).items()):
        for real, virtual in _VIRTUAL.items():
            if value is _REAL[real]:
                setattr(module, name, virtual)
    if module.__name__ in _DATES and vars(module).get("datetime") is datetime:
        module.datetime = DATETIME          # type: ignore[attr-defined]


def _app_clock() -> AppClock | None:
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
    """True if the caller is a library that waits in real time until a deadline of its own: it would wait for ever."""
    return str(sys._getframe(2).f_globals.get("__name__", "")).partition(".")[0] in _WAITING


def _sleep(seconds: float) -> None:
    app = running()
    if app is None or app.thread != threading.get_ident():
        _REAL["sleep"](seconds)         # of two threads that sleep at once nobody could tell how long both take
    elif not seconds >= 0:
        raise ValueError("sleep length must be non-negative")
    else:
        app.clock.sleep(float(seconds))


def _clock_gettime(which: int) -> float:
    clock = _app_clock()
    if clock is None:
        return float(_REAL["clock_gettime"](which))
    return _time() if which == time.CLOCK_REALTIME else clock.now_ns / 1e9


def _clock_gettime_ns(which: int) -> int:
    clock = _app_clock()
    if clock is None:
        return int(_REAL["clock_gettime_ns"](which))
    return _time_ns() if which == time.CLOCK_REALTIME else clock.now_ns


def _of_seconds(name: str) -> Callable[..., Any]:
    """`localtime`, `gmtime`, `ctime`: of now, if nothing is said."""
    def converted(seconds: float | None = None) -> Any:
        return _REAL[name](_time() if seconds is None else seconds)
    return converted


def _strftime(form: str, *of: object) -> str:
    return str(_REAL["strftime"](form, *(of or [_REAL["localtime"](_time())])))


def _asctime(*of: object) -> str:
    return str(_REAL["asctime"](*(of or [_REAL["localtime"](_time())])))


_VIRTUAL: dict[str, Any] = {name: virtual for name, virtual in {
    "time": _time, "time_ns": _time_ns, "sleep": _sleep,
    "clock_gettime": _clock_gettime, "clock_gettime_ns": _clock_gettime_ns,
    "localtime": _of_seconds("localtime"), "gmtime": _of_seconds("gmtime"), "ctime": _of_seconds("ctime"),
    "strftime": _strftime, "asctime": _asctime,
    **{name: _seconds(name) for name in _SECONDS}, **{f"{name}_ns": _nanoseconds(f"{name}_ns") for name in _SECONDS},
    }.items() if name in _REAL}


# --- datetime -----------------------------------------------------------------------------------------------------

class _Same(type):
    """An instance or a subclass of the library's class counts as one of its stand-in."""

    def __instancecheck__(cls, instance: object) -> bool:
        stands_in = cls.__module__ == __name__          # else it is a class that an app has made of one
        return isinstance(instance, cls.__mro__[1]) if stands_in else super().__instancecheck__(instance)

    def __subclasscheck__(cls, other: type) -> bool:
        stands_in = cls.__module__ == __name__
        return issubclass(other, cls.__mro__[1]) if stands_in else super().__subclasscheck__(other)


class _Datetime(datetime.datetime, metaclass=_Same):
    """`datetime.datetime`, but for what the time is now. Its values are of the library's own class."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return datetime.datetime.__new__(_own(cls, _Datetime, datetime.datetime), *args, **kwargs)

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Any:
        """The virtual time."""
        return _own(cls, _Datetime, datetime.datetime).fromtimestamp(_time(), tz)

    @classmethod
    def today(cls) -> Any:
        """The virtual time."""
        return cls.now()

    @classmethod
    def utcnow(cls) -> Any:
        """The virtual time."""
        return cls.now(datetime.UTC).replace(tzinfo=None)


class _Date(datetime.date, metaclass=_Same):
    """`datetime.date`, but for what day it is."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return datetime.date.__new__(_own(cls, _Date, datetime.date), *args, **kwargs)

    @classmethod
    def today(cls) -> Any:
        """The virtual day."""
        return _own(cls, _Date, datetime.date).fromtimestamp(_time())


def _own(cls: Any, stand_in: type, real: Any) -> Any:
    """The class itself where an app has made one of its own from a stand-in."""
    return real if cls is stand_in else cls


DATETIME = ModuleType("datetime", datetime.__doc__)         # the module, as modules of Flower and of apps have it
vars(DATETIME).update({**vars(datetime), "datetime": _Datetime, "date": _Date})


# --- threads ------------------------------------------------------------------------------------------------------

_REAL_START, _REAL_SUBMIT = threading.Thread.start, ThreadPoolExecutor.submit


def _start(self: threading.Thread) -> None:
    """A thread that an app starts runs as the app; one that emul starts meanwhile does not."""
    if _app_clock() is not None and not _of_emul(sys._getframe(1)):
        self.run = partial(contextvars.copy_context().run, self.run)        # type: ignore[method-assign]
    _REAL_START(self)


def _submit(self: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Threads of a pool outlive the call that has started them: each task runs as the app that has handed it in."""
    if _app_clock() is None or _of_emul(sys._getframe(1)):
        return _REAL_SUBMIT(self, fn, *args, **kwargs)
    return _REAL_SUBMIT(self, contextvars.copy_context().run, fn, *args, **kwargs)


def _of_emul(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith("emul.")
