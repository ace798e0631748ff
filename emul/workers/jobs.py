"""The computations of one worker's nodes: begun in virtual time, and really done when somebody needs them, or before
that while nothing is to be answered."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from emul.roles.costs import Costs
from emul.roles.events import Compute
from emul.roles.job import Elapsed, Job
from emul.workers.attacking import Attacking
from emul.workers.volatile import Volatile

if TYPE_CHECKING:
    from emul.learning import Task


class Timing(Struct, array_like=True, gc=False):
    """A computation's real CPU time."""

    node: int
    label: str
    work: float
    cpu_ns: int
    same: str = ""                      # the name of the computation if it is the same for all (`Job.same`); see `Jobs`


class Jobs:
    """fuse: labels of the computations that are done together. trains: no, under `training: skip`. named:
    timings name their computations, for profiles and checks of them: names take 10 % of a round without training."""

    def __init__(self, costs: Costs, fuse: Sequence[str], trains: bool, named: bool, task: Task | None,
                 attacking: Attacking | None, volatile: Volatile | None):
        self._costs, self._fuse, self._trains, self._named = costs, fuse, trains, named
        self._task, self._attacking, self._volatile = task, attacking, volatile
        self._counts = trains or named              # CPU times of the shortest computations, which costs a system call
        self.timings: list[Timing] = []
        self.waiting: list[tuple[int, int, int, Job]] = []      # (due, number, node, job): the most urgent first
        self._begun = 0
        self._job_of: dict[int, Job] = {}
        self._group_of: dict[int, list[int]] = {}   # node -> with whom its computation is to be done

    def begin(self, node: int, action: Compute, job: Job, speed: float, now: int) -> None:
        """A role has begun a computation. The action gets its cost."""
        # The worker tells the virtual cost first and works later, so computations of different workers overlap in real
        # time. If it worked first, the kernel would stand still for each training
        # (`test_compute_answers_with_the_cost_first_and_works_later`).
        # Activities of one role may begin several in one activation. They are done in this order, and all before the
        # next event of the node: so nothing that its role does later can show in them, whenever they really run.
        before = self._job_of.get(node)
        job.alone, job.before = action.alone, before if before is not None and self.needed(node) else None
        self._job_of[node], job.due = job, now
        if job.volatile and self._volatile is not None and self._volatile.recalls((node, job.number)):
            job.result, job.error = self._volatile.recall((node, job.number))
            job.end()
        if type(job.fn) is Elapsed and self._attacking is None:
            # nothing is left to do, so it waits for no turn; an attacker's is settled in its turn
            job.cpu_ns = job.fn.cpu_ns
            job.end()
            self.timings.append(Timing(node, job.label, job.work, job.cpu_ns))
        if action.cost < 0:                     # measured: the answer has to wait for the work
            self.run(node)
            action.cost = self._costs.stretched(node, now, round(job.cpu_ns / speed))
        else:
            action.cost = self._costs.stretched(node, now, action.cost, action.declared)
            job.due = now + action.cost
            fused = action.label in self._fuse and not job.alone
            if job.done or fused or not self._trains:       # the kernel will say with whom; or when
                return
            self._begun += 1
            if len(self.waiting) > 2 * len(self._job_of) + 100:         # most were done before their turn came
                self.waiting = [waiting for waiting in self.waiting if not waiting[3].done]
                heapq.heapify(self.waiting)
            heapq.heappush(self.waiting, (job.due, self._begun, node, job))

    def fuse(self, nodes: list[int]) -> None:
        """The computations of these nodes are to be done as one."""
        for node in nodes:
            self._group_of[node] = nodes

    def needed(self, node: int) -> bool:
        """True if the node's role can go on only after a computation that has not been done yet."""
        job = self._job_of.get(node)
        return job is not None and (not job.done or job.before is not None)

    def ungrouped(self, node: int) -> bool:
        """True if the node's computation is to be done with others, and the kernel has not said with whom."""
        job = self._job_of[node]
        return job.label in self._fuse and not job.alone and node not in self._group_of

    def run(self, node: int, upto: Job | None = None) -> None:
        """Do the node's computation, and those that are done with it, unless it has been.

        upto: of a node with several the one before which all are done, and this one; None: the last.
        """
        job = upto or self._job_of[node]
        if job.before is not None:
            self.run(node, job.before)
            job.before = None
        if job.done:
            return
        nodes = [node] if job.alone else self._group_of.get(node, [node])
        jobs = [job] if job.alone else [self._job_of[n] for n in nodes]
        computed = [job.same if self._named else "" for job in jobs]
        if len(jobs) > 1 and self._task is not None:
            for job, spent in zip(jobs, self._task.together.run([job.run for job in jobs]), strict=True):
                job.cpu_ns = spent              # its own measurement has the others in it
        else:
            for job in jobs:
                busy = self._busy_ns
                job.run(self._counts)
                job.cpu_ns = max(job.cpu_ns, self._busy_ns - busy)      # the CPU launches while the GPU computes
        for member, job, same in zip(nodes, jobs, computed, strict=True):
            self._group_of.pop(member, None)
            if job.volatile and self._volatile is not None:
                job.result, job.error = self._volatile.settle((member, job.number), job.label, job.result, job.error)
            if self._attacking is not None:
                self._attacking.settle(member, job.due)
            self.timings.append(Timing(member, job.label, job.work, job.cpu_ns, same))

    def run_most_urgent(self) -> bool:
        """Do the computation that is due first. False: none waits."""
        while self.waiting:
            _, _, node, job = heapq.heappop(self.waiting)
            if not job.done:
                self.run(node, job)
                return True
        return False

    def over(self, node: int) -> None:
        """The node's role has gone on: it has what its computation gave."""
        self._job_of.pop(node, None)

    def crashed(self, node: int) -> None:
        """A computation that the node had begun is run all the same: whether the real machine had got to it must not
        show in the node's streams and state."""
        if node in self._job_of:
            self.run(node)
            self.over(node)

    @property
    def _busy_ns(self) -> int:
        """The time that a GPU has computed so far."""
        return 0 if self._task is None else self._task.device.busy_ns
