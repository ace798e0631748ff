"""A run in TensorBoard, MLflow or Weights & Biases while it goes: what its rounds come to, as soon as it is known."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from emul.record.load import load_run
from emul.report.export import Curves, ExportError, MLflowRun, Scalar, TensorBoardEvents, WandbRun, of_round, titled
from emul.report.live.following import Follower
from emul.report.live.state import RunProgress

_EVERY_S = 1.0
_SETTLE_S = 30.0                    # for what is still to be told once the run has ended
_RECENT = 100                       # rounds of which values may still come

# kind -> the place of the run in a directory there, made from the text after `=` ("": where emul's or MLflow's own
# settings say) under the name by which `emul export` writes it
KINDS: dict[str, Callable[[Path, str, str], Curves]] = {
    "tensorboard": lambda directory, where, name: TensorBoardEvents(Path(where or "runs/tensorboard"), name),
    "mlflow": lambda directory, where, name: MLflowRun(directory, where or None, name),
    "wandb": lambda directory, where, name: WandbRun(directory, Path(where or "runs"), name)}


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
            if one.left_ns is None:
                continue
            known = {**one.values, **state.observed.get((one.number, one.node), {})}
            numbers = {name: float(value) for name, value in known.items()
                       if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)}
            for scalar in of_round(one.number, state.nodes[one.node].name if many else "", one.left_ns, one.bytes,
                                   not one.why, numbers):
                if scalar[:2] not in self._told:
                    self._told.add(scalar[:2])
                    found.append(scalar)
        return found

    def _fail(self, error: Exception) -> None:
        self._failed = True
        print(f"warning: nothing more is logged: {type(error).__name__}: {error}", file=sys.stderr)     # noqa: T201


def logger(said: str) -> Callable[[Path], AbstractContextManager[None]]:
    """The logger that `--log` names, such as `tensorboard` or `mlflow=sqlite:///runs.db`. Raises ExportError: no such
    kind, or its package is not installed."""
    kind, _, where = said.partition("=")
    if kind not in KINDS:
        raise ExportError(f"--log {kind}: expected one of {', '.join(KINDS)}, with =PLACE behind it or without")
    try:
        __import__(kind)
    except ImportError:
        raise ExportError(f"--log {kind} needs a package: install emul[{kind}]") from None
    return lambda directory: _logged(directory, lambda state: KINDS[kind](
        directory, where, titled(state.label, state.header.get("seed"), directory)))


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
