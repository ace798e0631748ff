"""A computation of a role: how it is run once, what it costs, and by what name its cost is compared."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter_ns
from typing import Any

import numpy as np

from emul.base.clock import cpu_ns, credit


class Meter:
    """CPU time of short pieces of code. The thread's CPU clock costs a system call, so it is read only where the
    wall clock says that a piece may have been long; the piece was at most what has been used since it was read last.
    """

    # The CPU clock always took a fifth of the samples of a profile in process. The wall clock always would blame a
    # preempted thread for the work of others. A piece below 0.5 ms may still count a preemption.

    def __init__(self) -> None:
        self.mark = 0

    def cpu_ns(self, wall_ns: int) -> int:
        """CPU ns of a piece that took `wall_ns`; below 0.5 ms its wall time counts as that."""
        if wall_ns < 500_000:
            return wall_ns
        now = cpu_ns()
        used, self.mark = now - self.mark, now
        return min(wall_ns, used)


meter = Meter()


class Elapsed:
    """A computation that has been done elsewhere, and took `cpu_ns` there. To call it counts that time."""

    __slots__ = ("cpu_ns",)

    def __init__(self, cpu_ns: int):
        self.cpu_ns = cpu_ns

    def __call__(self) -> None:
        credit(self.cpu_ns)


class Job:
    """A computation that has begun in virtual time. It really runs once, sooner or later, whatever happens."""

    __slots__ = ("alone", "args", "before", "cpu_ns", "done", "due", "error", "fn", "label", "number", "result",
                 "volatile", "work")

    def __init__(self, label: str, fn: Callable[..., object], args: tuple[object, ...], work: float, number: int = 0,
                 volatile: bool = False):
        self.label, self.fn, self.args, self.work = label, fn, args, work
        self.number = number                        # its number among the node's computations, from 0
        self.volatile = volatile                    # its result cannot repeat itself
        self.due = 0
        self.alone = False                          # as `Compute.alone`
        self.before: Job | None = None              # of the same node, begun before it and not yet done
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.cpu_ns = 0

    @property
    def same(self) -> str:
        """The name of the computation, if its cost is the same for every scheme that asks for it: a method of the
        learning task with its plain arguments and the shapes of its arrays (`NodeTask.charged_alike`). "": a function
        of the scheme's own, or an argument of another kind."""
        fn, args, keys = self.fn, self.args, dict[str, Any]()
        if isinstance(fn, partial):
            args, keys = fn.args + args, fn.keywords
            fn = fn.func
        charged_alike = getattr(getattr(fn, "__self__", None), "charged_alike", None)
        if charged_alike is None:
            return ""
        words = [*map(_in_words, args), *(f"{key}={_in_words(value)}" for key, value in sorted(keys.items()))]
        return "" if any(text.endswith("?") for text in words) else f"{charged_alike(fn.__name__)}({', '.join(words)})"

    def run(self, counts: bool = True) -> None:
        """Call the function here and now. Keeps its result, or the exception to be raised where the role awaits it, and
        its CPU time. counts: that time is wanted of the shortest ones, too (`Meter`)."""
        begin = cpu_ns() if counts else perf_counter_ns()
        try:
            self.result = self.fn(*self.args)
        except Exception as e:          # raised again where the role awaits it
            self.error = e
        if counts:
            meter.mark = cpu_ns()
            self.cpu_ns = meter.mark - begin
        else:
            self.cpu_ns = meter.cpu_ns(perf_counter_ns() - begin)
        self.end()

    def end(self) -> None:
        """It is done; what it held can go."""
        self.done = True
        self.fn, self.args = _nothing, ()


def _in_words(value: object) -> str:
    """An argument as it decides about a cost; "?": nobody knows how."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    return repr(value) if isinstance(value, int | float | str | None) else "?"


def _nothing() -> None:
    return None
