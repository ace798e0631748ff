"""Trainings of a task's model: alone, as one with those of other nodes, and how many of them memory holds at once."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from emul.base.clock import off_the_clock
from emul.base.plain import PlainDict
from emul.learning.task_parts import TaskError, TaskParts, Vector

if TYPE_CHECKING:
    from emul.learning.fitting import Fitting
    from emul.learning.local import KeptMoments, LocalTraining
    from emul.learning.pieces import PieceLayout
    from emul.learning.stacked_pieces import Asked
    from emul.learning.together import Together
    from emul.store import Store

_log = logging.getLogger(__name__)


class Trainer(TaskParts):
    """The parts of a task, and the trainings of its model.

    memory: the most that a process on a CPU may hold, bytes; 0: no limit. sharing: workers that are on this GPU.
    """

    skips = False                       # `training: skip`: local trainings leave every model as it is

    def __init__(self, spec: PlainDict, clients: int, seed: int, device: str = "cpu",
                 store: Store | None = None, plugins: Sequence[str] = (), memory: int = 0, sharing: int = 1):
        super().__init__(spec, clients, seed, device, store, plugins)
        self._layouts: dict[tuple[str | None, str | None], PieceLayout] = {}
        self._alone: set[Hashable] = set()              # settings of objectives that cannot be fused
        self._memory, self._sharing = memory, sharing

    def prepare(self) -> None:
        """Load the data and build the model now: neither is to fall into what a role does first."""
        _ = self._initial, self._model
        self._plan_memory()

    def train(self, local: LocalTraining) -> Vector:
        """The model's state after a local training, (d,) float32, a fresh array: as one with others' where computations
        run together. It depends on `local` alone (and, where it is one with others', on theirs by rounding)."""
        if self.together.running and local.solver.stacks:
            after = self.together.ask(local)
            assert isinstance(after, np.ndarray)
            return after
        if self._masks_on_cpu and local.solver.stacks:
            return self._train_fused([local])[0]
        from emul.learning.local import train_alone

        return self.result("train", local, lambda: [train_alone(self._model, local)])[0]

    def train_keeping(self, local: LocalTraining) -> tuple[Vector, KeptMoments]:
        """As `train`, alone, with a solver that goes on from `local.kept`: (the state after, what the solver has)."""
        from emul.learning.local import KeptMoments, train_keeping

        def compute() -> list[np.ndarray]:
            after, kept = train_keeping(self._model, local)
            return [after, np.array([kept.taken]), *kept.moments]

        after, taken, *moments = self.result("train keeping", local, compute)
        return after, KeptMoments(int(taken[0]), tuple(moments))

    def descend(self, before: Vector, gradient: Vector, kept: KeptMoments | None) -> tuple[Vector, KeptMoments]:
        """One step of the solver along a gradient: (the state after, what the solver has)."""
        from emul.learning.local import KeptMoments, descend

        def compute() -> list[np.ndarray]:
            after, moments = descend(self._model, before, gradient, self.solver, kept)
            return [after, np.array([moments.taken]), *moments.moments]

        after, taken, *moments = self.result("descend", (before, gradient, self.solver, kept), compute)
        return after, KeptMoments(int(taken[0]), tuple(moments))

    # --- side by side -------------------------------------------------------------------------------------------------

    @cached_property
    def together(self) -> Together[Asked, object]:
        """The object that runs training computations side by side and trains for them as one."""
        from emul.learning.together import Together

        return Together(_alike, self._as_one, lambda: self.device.busy_ns)

    @contextlib.contextmanager
    def apart(self) -> Iterator[Together[Asked, object]]:
        """Off the clock, and apart from computations that run side by side: inside the block trainings are alone, or
        together with those that are run with what is given."""
        from emul.learning.together import Together

        outer, busy_ns = self.together, self.device.busy_ns
        self.together = inner = Together(_alike, self._as_one)
        try:
            with off_the_clock():
                yield inner
        finally:
            self.together, self.device.busy_ns = outer, busy_ns

    def layout(self, after: str | None, last: str | None) -> PieceLayout:
        """Of a piece of the model (`NodeTask.piece`), made once. Raises PieceError."""
        from emul.learning.pieces import PieceLayout

        if (after, last) not in self._layouts:
            self._layouts[after, last] = PieceLayout.of_run(self, after, last)
        return self._layouts[after, last]

    def _as_one(self, asked: Sequence[Asked]) -> Sequence[object]:
        """The answers to trainings, or to passes through pieces, that are alike."""
        from emul.learning.local import LocalTraining
        from emul.learning.stacked_pieces import answered

        trainings = [one for one in asked if isinstance(one, LocalTraining)]
        return self._train_fused(trainings) if trainings else answered([
            one for one in asked if not isinstance(one, LocalTraining)])

    def _train_fused(self, locals_: Sequence[LocalTraining]) -> list[Vector]:
        """The state after each of them, in groups that memory holds. Raises DeviceError: it does not hold one."""
        found: list[Vector] = []
        for group in self.fitting.groups(locals_):
            after = self._train_group(group)
            if after is None:
                self.fitting.halve(len(group))
                self.device.let_go()
                return found + self._train_fused(locals_[len(found):])
            found += after
        return found

    def _train_group(self, locals_: Sequence[LocalTraining]) -> list[Vector] | None:
        """The state after each of them: as one where model, data and objective let that be, else one after the other,
        which is said once. None: no memory, and with fewer there may be enough. No traceback is kept beyond this: it
        would hold the tensors."""
        from emul.learning.device import DeviceError
        from emul.learning.fitting import met_no_memory
        from emul.learning.fused import FuseError, train_fused
        from emul.learning.local import train_alone

        def compute() -> list[np.ndarray]:
            if self._refusal is None and objective.settings not in self._alone:
                try:
                    return train_fused(self._model, locals_)
                except FuseError as error:
                    self._alone.add(objective.settings)
                    _log.warning("clients are trained one after the other: %s", error)
            return [train_alone(self._model, local) for local in locals_]

        objective = locals_[0].objective
        try:
            return self.result("train as one", tuple(locals_), compute)
        except Exception as error:
            if not met_no_memory(error):
                raise
            if len(locals_) > 1:
                return None
            raise DeviceError(f"{self.device.kind}: no memory for the training of one client: "
                              f"{str(error).partition(chr(10))[0]}") from None

    @cached_property
    def _refusal(self) -> str | None:
        """The reason why the model's trainings cannot be computed as one; None: they can."""
        from emul.learning import fused

        if isinstance(self.data.train_x, dict):
            reason: str | None = "samples of several tensors"
        else:
            reason = fused.refusal(self._model.module, self.examples(3).x)
        if reason is not None:
            _log.warning("clients are trained one after the other: %s: %s", self.spec["model"], reason)
        return reason

    @cached_property
    def _masks_on_cpu(self) -> bool:
        """True if a lone training goes through the code of fused ones, which draws dropout masks where a CPU's would:
        on a GPU, if the model lets it."""
        return not self.device.on_cpu and self._refusal is None

    @cached_property
    def fitting(self) -> Fitting:
        """The number of clients that are trained as one."""
        from emul.learning.fitting import Fitting

        return Fitting()

    def _plan_memory(self) -> None:
        """Plan how many clients are trained as one, from a step of one and one of two. Raises TaskError if not one
        fits."""
        from emul.learning.fitting import met_no_memory
        from emul.learning.fused import train_fused
        from emul.learning.local import LocalTraining, train_alone
        from emul.learning.training import Samples, Stream

        held = sum(array.nbytes for x in (self.data.train_x, self.data.test_x)
                   for array in (x.values() if isinstance(x, dict) else (x,)))
        room = None if self.skips or not self.clients else self.device.room(self._memory, held, self._sharing)
        if room is None:
            return
        largest = max(range(self.clients), key=self.samples)            # its batches are
        local = LocalTraining(self._initial, Samples(self.data, self.indices(largest)), self.solver.with_steps(1),
                              Stream(self.seed, "memory", 0, 0), self.objective)

        def train(clients: int) -> None:
            if self._refusal is None and local.solver.stacks:
                train_fused(self._model, [local] * clients)
            else:
                train_alone(self._model, local)

        try:
            one, two = (self.device.peak(partial(train, clients)) for clients in (1, 2))
        except Exception as error:
            if not met_no_memory(error):
                raise
            one, two = room + 1, room + 1
        self.device.let_go()
        if one > room:
            raise TaskError(f'model "{self.spec["model"]}": a step of one client takes {-(-one // 2**20):,} MiB and '
                            f"more, expected at most {max(0, room) // 2**20:,} MiB, which {self.device.kind} has for "
                            "it")
        self.fitting.plan(room, one, two, 4 * self.dimension if self.device.on_cpu else 0)


def _alike(asked: Asked) -> Hashable:
    """The properties that what is computed as one must share."""
    from emul.learning import fused
    from emul.learning.local import LocalTraining

    return fused.key(asked) if isinstance(asked, LocalTraining) else asked.key
