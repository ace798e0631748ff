"""A run in TensorBoard, MLflow or Weights & Biases while it goes: what its rounds come to, as soon as it is known."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from emul.record.load import load_run
from emul.report.export import Curves, ExportError, MLflowRun, Scalar, TensorBoardEvents, WandbRun
from emul.report.live.following import Follower
from emul.report.live.state import RoundProgress, RunProgress

_EVERY_S = 1.0
_SETTLE_S = 30.0                    # for what is still to be told once the run has ended
_RECENT = 100                       # rounds of which values may still come

Beside = Callable[[Path], AbstractContextManager[None]]         # of a run directory: while the run in it goes


def _title(state: RunProgress) -> str:
    """The name under which `emul export` writes the same run."""
    return f"{state.label}-seed{state.header.get('seed')}-{state.path.resolve().name}"


# kind -> the place of a run there, made from the text after `=`; "": where emul's or MLflow's own settings say
KINDS: dict[str, Callable[[RunProgress, str], Curves]] = {
    "tensorboard": lambda state, where: TensorBoardEvents(Path(where or "runs/tensorboard"), _title(state)),
    "mlflow": lambda state, where: MLflowRun(state.path, where or None, _title(state)),
    "wandb": lambda state, where: WandbRun(state.path, Path(where or "runs"), _title(state))}
_PACKAGES = {kind: kind for kind in KINDS}


class Logging:
    """Feeds a log from the journal of a run. An error there is said once, and does not touch the run."""

    def __init__(self, make: Callable[[RunProgress], Curves]):
        self._make = make
        self._log: Curves | None = None
        self._told: set[tuple[str, int]] = set()
        self._failed = False

    def __call__(self, state: RunProgress) -> None:
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
                self._log.close(load_run(directory))
            except Exception as e:
                self._fail(e)

    def _news(self, state: RunProgress) -> list[Scalar]:
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


def _values(one: RoundProgress, state: RunProgress) -> dict[str, float]:
    """The values of a round as in `emul.report.export.scalars`, as far as known; none while it is under way."""
    if one.left_ns is None:
        return {}
    known = {**one.values, **state.observed.get((one.number, one.node), {}), "mb": one.bytes / 1e6,
             "virtual_s": one.left_ns / 1e9, "completed": 0.0 if one.why else 1.0}
    return {name: float(value) for name, value in known.items()
            if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)}


def logger(said: str) -> Beside:
    """The logger that `--log` names, such as `tensorboard` or `mlflow=sqlite:///runs.db`. Raises ExportError: no such
    kind, or its package is not installed."""
    kind, _, where = said.partition("=")
    if kind not in KINDS:
        raise ExportError(f"--log {kind}: expected one of {', '.join(KINDS)}, with =PLACE behind it or without")
    try:
        __import__(_PACKAGES[kind])
    except ImportError:
        raise ExportError(f"--log {kind} needs a package: install emul[{kind}]") from None
    return lambda directory: _logged(directory, lambda state: KINDS[kind](state, where))


@contextlib.contextmanager
def _logged(directory: Path, make: Callable[[RunProgress], Curves]) -> Iterator[None]:
    logging = Logging(make)
    follower = Follower(directory, logging, _EVERY_S)
    follower.start()
    try:
        yield
    finally:
        follower.settle(_SETTLE_S)
        follower.stop()
        logging.close(directory)
