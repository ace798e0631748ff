"""Workers on the machines of a Ray cluster: an actor for each, spread over the machines; frames by TCP under CURVE.

    with Workers(8, launcher=Actors(cluster("ray:auto", 8))) as pool:
        run(scenario, workers=pool)

Ray places the actors and gives each its CPUs and GPUs, carries the pool's keys to them, and notices when one or its
machine is lost. An actor starts the worker that every pool has (`emul.workers.host`); events and payloads do not go
through Ray.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any

from emul.base.errors import RunError
from emul.base.extras import MissingExtra
from emul.workers.cluster import Cluster
from emul.workers.launcher import address_towards
from emul.workers.ray_address import CUT_OFF, NoCluster, join, outside
from emul.workers.remote import Hosted, require_alike, require_meeting
from emul.workers.transport import Tcp, WorkerSettings

_PLACED_S = 120                     # for the cluster to find room for all workers
_AGAIN_S = 1                        # until an actor is asked again that Ray did not reach,
_UNREACHED = 10                     # and how often, before it counts as lost
_PARTED_S = 60                      # for the cluster to let go of a pool
_ANSWER_S = 300                     # for an actor to do what is small, on a machine that is busy


class Remote:
    """A worker that an actor has started. `about`: (address, process)."""

    def __init__(self, actor: Any, address: str, pid: int):
        self.actor, self.address, self.pid = actor, address, pid
        self.sentinel, self._ended = os.pipe()
        self._over = threading.Event()
        self._how = "has not ended"
        self._unreached = 0
        self.cut_off = False                # the whole cluster, as far as this process knows
        self._watch()

    def _watch(self) -> None:
        """Ask for the worker's end, and note it when it comes."""
        self.actor.wait.remote().future().add_done_callback(self._note)

    @property
    def place(self) -> str:
        return f"process {self.pid} on {self.address}"

    def _note(self, code: Future[int]) -> None:
        import ray

        lost = code.exception()
        if isinstance(lost, ray.exceptions.ActorUnavailableError) and self._unreached < _UNREACHED:
            self._unreached += 1                # it may be for a moment, on a machine that is busy
            threading.Timer(_AGAIN_S, self._watch).start()
            return
        self.cut_off = isinstance(lost, ConnectionError)
        self._how = (f"ended with exit code {code.result()}" if lost is None else
                     f"is lost: {CUT_OFF}"
                     if self.cut_off else
                     f"is lost: its actor or its machine has ended ({type(lost).__name__})")
        self._over.set()
        os.write(self._ended, b".")

    def ending(self) -> str:
        return self._how

    def is_alive(self) -> bool:
        return not self._over.is_set()

    def kill(self) -> None:
        import ray

        if _reached([self]):
            with _lost_ones_passed_over():
                ray.kill(self.actor)        # its worker watches it

    def join(self, timeout: float) -> None:
        self._over.wait(timeout)

    def forget(self) -> None:
        """Close the descriptors."""
        self._over.wait(5)
        if self._over.is_set():             # else Ray may still write to it
            os.close(self.sentinel)
            os.close(self._ended)


class Actors(Hosted[Remote]):
    """The launcher of workers on a cluster. Raises MissingExtra, NoCluster."""

    # An actor starts a worker and is none itself: in the actor every event would be a task of Ray, a hundred times as
    # dear, and the libraries that Ray has imported would be in the worker's bits. Ray's objects would hold payloads in
    # two stores, by pickle (`test_a_scheme_has_the_digests_that_it_has_here`).

    def __init__(self, cluster: Cluster):
        super().__init__(cluster)
        self._ours = False                  # the connection to the cluster
        self._group: Any = None

    # --- life -----------------------------------------------------------------------------------------------------

    def transport(self) -> Tcp:
        """At the address of this process that the cluster's machines reach; with it the connection begins."""
        try:
            import ray
        except ImportError:
            raise MissingExtra("--on ray:... needs Ray, which is not installed: pip install 'emul[ray]'") from None
        if not ray.is_initialized():
            join(self._cluster.address)
            self._ours = True
        return Tcp.new(_own_address())

    def start(self, every: Sequence[WorkerSettings]) -> list[Remote]:
        try:
            return self._started(every)
        except ConnectionError as e:
            raise NoCluster(f"{CUT_OFF}, before the workers ran: {e}") from None

    def _started(self, every: Sequence[WorkerSettings]) -> list[Remote]:
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        from emul.workers.host import ProcessHost

        self._reserve(len(every))
        asked = {"num_cpus": self._cluster.cpus, "num_gpus": self._cluster.gpus, "max_concurrency": 4}
        host: Any = ray.remote(ProcessHost)
        actors = [host.options(scheduling_strategy=PlacementGroupSchedulingStrategy(
            self._group, placement_group_bundle_index=index), **asked).remote() for index in range(len(every))]
        about = ray.get([actor.about.remote() for actor in actors])
        require_alike(about)
        _require_meeting(actors, [address for address, *_ in about], every[0].control)
        pids = ray.get([actor.start.remote(told.text()) for actor, told in zip(actors, every, strict=True)])
        self._workers = [Remote(actor, address, pid)
                         for actor, (address, *_), pid in zip(actors, about, pids, strict=True)]
        return self._workers

    def _reserve(self, n: int) -> None:
        """Room for `n` workers, on as many machines as possible. Raises NoCluster."""
        import ray

        share = {name: amount for name, amount in (("CPU", self._cluster.cpus), ("GPU", self._cluster.gpus)) if amount}
        self._group = ray.util.placement_group([share or {"CPU": 0.001}] * n, strategy="SPREAD")
        if not self._group.wait(_PLACED_S):
            free = {name: ray.available_resources().get(name, 0.0) for name in share}
            raise NoCluster(f"no room for {n} workers of {share} on the cluster, which has {free} free")

    def close(self) -> None:
        """Actors, their places and the connection go."""
        if not outside():
            self._part()
            return
        # Ray's client may ask for ever where its server is gone
        parting = threading.Thread(target=self._part, daemon=True)
        parting.start()
        parting.join(_PARTED_S)

    def _part(self) -> None:
        import ray

        workers, self._workers = self._workers, []
        group, self._group = self._group, None
        if workers and _reached(workers):
            with _lost_ones_passed_over():
                ray.wait(ends := [worker.actor.end.remote() for worker in workers], num_returns=len(ends), timeout=5)
        for worker in workers:
            worker.kill()
            worker.forget()
        if group is not None and _reached(workers):
            with _lost_ones_passed_over():
                ray.util.remove_placement_group(group)
        if self._ours:
            self._ours = False
            ray.shutdown()

    # --- what is asked of the hosts ----------------------------------------------------------------------------------

    def _all(self, method: str, *given: object) -> list[object]:
        import ray

        shared = [ray.put(one) if isinstance(one, dict) else one for one in given]
        try:
            return ray.get([getattr(worker.actor, method).remote(*shared) for worker in self._workers],
                           timeout=_ANSWER_S)
        except (ray.exceptions.RayError, ConnectionError) as e:
            raise RunError(f"a worker's actor cannot {method}: {e}") from None

    def _answer(self, worker: Remote, method: str, *given: object) -> object:
        import ray

        try:
            return ray.get(getattr(worker.actor, method).remote(*given), timeout=_ANSWER_S)
        except (ray.exceptions.RayError, ConnectionError) as e:
            raise RunError(f"a worker's actor cannot {method}: {e}") from None

    def _reach(self) -> bool:
        return _reached(self._workers)


def _reached(workers: Sequence[Remote]) -> bool:
    """True if this process is connected to the cluster still. Asked without one, Ray begins another, or waits."""
    import ray

    return ray.is_initialized() and not any(worker.cut_off for worker in workers)


def _own_address() -> str:
    """Of this process, as the machines of the cluster reach it."""
    import ray

    if not outside():
        return ray.util.get_node_ip_address()
    machine = next(str(node["NodeManagerAddress"]) for node in ray.nodes() if node["Alive"])
    return address_towards(machine)


def _require_meeting(actors: Sequence[Any], addresses: Sequence[str], control: str) -> None:
    import ray

    require_meeting(addresses, ray.get([actor.meet.remote(control) for actor in actors]), control)


@contextlib.contextmanager
def _lost_ones_passed_over() -> Iterator[None]:
    """An actor that has ended answers nothing, and need not."""
    import ray

    with contextlib.suppress(ray.exceptions.RayError, ConnectionError):         # the latter is of Ray's client
        yield
