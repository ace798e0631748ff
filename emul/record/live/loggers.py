"""A run in TensorBoard or MLflow while it goes: what its rounds come to, as soon as it is known."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from emul.record.export import ExportError, MLflowRun, Scalar, TensorBoardEvents
from emul.record.live.following import Follower
from emul.record.live.state import Round, State
from emul.record.tables import load_run

_EVERY_S = 1.0
_SETTLE_S = 30.0                    # for what is still to be told once the run has ended
_RECENT = 100                       # rounds of which values may still come

Beside = Callable[[Path], AbstractContextManager[None]]         # of a run directory: while the run in it goes


class Log(Protocol):
    """Where scalars go."""

    def add(self, found: Sequence[Scalar]) -> None: ...
    def close(self, directory: Path) -> None: ...


class TensorBoard:
    """Below `where`, where `emul export` writes the same run."""

    def __init__(self, state: State, where: str):
        name = f"{state.label}-seed{state.header.get('seed')}-{state.path.resolve().name}"
        self._events = TensorBoardEvents(Path(where or "runs/tensorboard") / name)
        self.add = self._events.add

    def close(self, directory: Path) -> None:
        """All was written."""
        self._events.close()


class MLflow:
    """A run in the store `where`; "": where MLflow's own settings say."""

    def __init__(self, state: State, where: str):
        name = f"{state.label}-seed{state.header.get('seed')}-{state.path.resolve().name}"
        self._run = MLflowRun(state.path, where or None, name)
        self.add = self._run.add

    def close(self, directory: Path) -> None:
        """Log what the summary says."""
        self._run.close(load_run(directory))


KINDS: dict[str, Callable[[State, str], Log]] = {"tensorboard": TensorBoard, "mlflow": MLflow}
_PACKAGES = {"tensorboard": "tensorboard", "mlflow": "mlflow"}


class Logging:
    """Feeds a log from the journal of a run. What goes wrong there is said once, and does not touch the run."""

    def __init__(self, make: Callable[[State], Log]):
        self._make = make
        self._log: Log | None = None
        self._told: set[tuple[str, int]] = set()
        self._failed = False

    def __call__(self, state: State) -> None:
        """Taken from the follower's thread."""
        if self._failed or not state.header:
            return
        try:
            self._log = self._log or self._make(state)
            self._log.add(self._news(state))
        except Exception as e:          # of another package, its server or its disk
            self._fail(e)

    def close(self, directory: Path) -> None:
        """The run is over."""
        if self._log is not None and not self._failed:
            try:
                self._log.close(directory)
            except Exception as e:
                self._fail(e)

    def _news(self, state: State) -> list[Scalar]:
        """Scalars that were not told, of rounds that are over."""
        many = len({one.node for one in state.rounds.values()}) > 1
        found = []
        for one in list(state.rounds.values())[-_RECENT:]:
            for name, value in _values(one, state).items():
                full = f"{name}/{state.nodes[one.node].name}" if many else name
                if (full, one.number) not in self._told:
                    self._told.add((full, one.number))
                    found.append((full, one.number, (one.left_ns or 0) / 1e9, value))
        return found

    def _fail(self, error: Exception) -> None:
        self._failed = True
        print(f"warning: nothing more is logged: {type(error).__name__}: {error}", file=sys.stderr)     # noqa: T201


def _values(one: Round, state: State) -> dict[str, float]:
    """What `emul.record.export.scalars` has of a round, as far as it is known; nothing while it is under way."""
    if one.left_ns is None:
        return {}
    known = {**one.values, **state.observed.get((one.number, one.node), {}), "mb": one.bytes / 1e6,
             "virtual_s": one.left_ns / 1e9, "completed": 0.0 if one.why else 1.0}
    return {name: float(value) for name, value in known.items()
            if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)}


def logger(said: str) -> Beside:
    """What `--log` says, such as `tensorboard` or `mlflow=sqlite:///runs.db`. Raises ExportError: no such kind, or its
    package is not installed."""
    kind, _, where = said.partition("=")
    if kind not in KINDS:
        raise ExportError(f"--log {kind}: expected {' or '.join(KINDS)}, with =PLACE behind it or without")
    try:
        __import__(_PACKAGES[kind])
    except ImportError:
        raise ExportError(f"--log {kind} needs a package: install emul[{kind}]") from None
    return lambda directory: _logged(directory, lambda state: KINDS[kind](state, where))


@contextlib.contextmanager
def _logged(directory: Path, make: Callable[[State], Log]) -> Iterator[None]:
    logging = Logging(make)
    follower = Follower(directory, logging, _EVERY_S)
    follower.start()
    try:
        yield
    finally:
        follower.settle(_SETTLE_S)
        follower.stop()
        logging.close(directory)
