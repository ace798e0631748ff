"""Cells as tasks of a Ray cluster. Paths and JSON cross, nothing else; the directory of the study is to be a place
that all machines of the cluster see under the same name, and so are the files that the scenario names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from emul.base.errors import InputError
from emul.study.job import CellEvent, CellJob, Tell, run_text
from emul.workers.joining import CUT_OFF, NoCluster, join


class RayMissing(InputError):
    """`--engine ray` without Ray."""


def on_ray(tasks: Sequence[CellJob], tell: Tell) -> None:
    """Run tasks on the cluster of $RAY_ADDRESS, on one that runs on this machine, or on a new one of this machine.

    A task asks for as many CPUs as it has workers. A machine that is lost costs its cells. Raises RayMissing and
    NoCluster.
    """
    try:
        import ray
    except ImportError:
        raise RayMissing("--engine ray needs Ray: install emul[ray]") from None
    ours = not ray.is_initialized()
    if ours:
        join(None)
    try:
        place: Any = ray.remote(max_retries=0)(run_text)
        waiting = {place.options(num_cpus=max(1, task.workers)).remote(msgspec.json.encode(task).decode()): task.key
                   for task in tasks}
        while waiting:
            for ended in ray.wait(list(waiting))[0]:
                key = waiting.pop(ended)
                try:
                    tell(msgspec.json.decode(ray.get(ended), type=CellEvent))
                except ray.exceptions.RayError as e:
                    tell(CellEvent(key, done=True, error=f"{type(e).__name__}: {e}"))
    except ConnectionError as e:
        raise NoCluster(f"{CUT_OFF}; the same command goes on with what is missing: {e}") from None
    finally:
        if ours:
            ray.shutdown()          # ends what still runs, if this is an interrupt
