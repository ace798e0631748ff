"""The places of the cells of a study, from the arguments of a command or a call."""

from __future__ import annotations

from collections.abc import Sequence

from emul.base.machine import cores
from emul.study import engines
from emul.study.runs import Where


def placed(engine: str = "local", jobs: int = 1, workers: int | None = None, plugins: Sequence[str] = (),
           quiet: bool = True) -> Where:
    """On this machine, `jobs` cells beside each other, or, engine "ray", as tasks of a Ray cluster.

    workers: processes of each; None: the cores divided by the jobs, 1 with Ray. Raises RayMissing.
    """
    if engine == "ray":
        from emul.study.ray_engine import on_ray

        return Where(on_ray, 1 if workers is None else workers, tuple(plugins), quiet)
    return Where(engines.here if jobs == 1 else engines.beside(jobs), _each(jobs, workers), tuple(plugins), quiet)


def crowded(jobs: int, workers: int | None) -> str:
    """A warning if the jobs want more cores than there are; "": they do not."""
    each = max(1, _each(jobs, workers))
    if jobs * each <= cores():
        return ""
    return (f"{jobs} jobs with {each} workers each share {cores()} cores: runs get slower, and measured times wrong")


def _each(jobs: int, workers: int | None) -> int:
    return max(1, cores() // jobs) if workers is None else workers
