"""The place of workers that are not on this machine: `ray:auto`, `ray://host:10001?cpus=2&gpus=0.5`, `slurm?gpus=1`."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from emul.base.errors import Problem, ScenarioError

_EXPECTED = "expected slurm, ray:auto or ray://HOST:PORT, with ?cpus=N&gpus=N for what each worker is given"
SLURM = "slurm"


@dataclass(frozen=True)
class Cluster:
    """So many workers on a Ray cluster, or in an allocation of Slurm. address: as Ray is told, or `SLURM`; cpus, gpus:
    of each worker; with Ray a GPU may be shared."""

    workers: int
    address: str = "auto"
    cpus: float = 1.0
    gpus: float = 0.0

    @property
    def client(self) -> bool:
        """True if this process speaks to the cluster from outside."""
        return self.address.startswith("ray://")

    @property
    def name(self) -> str:
        """As `--on` names it, without what each worker is given."""
        return f"ray:{self.address}" if self.address == "auto" else self.address


def cluster(text: str, workers: int | None) -> Cluster:
    """The cluster that `--on` and `--workers` describe. Raises ScenarioError.

    >>> cluster("ray://10.0.0.1:10001?gpus=0.5", 8)
    Cluster(workers=8, address='ray://10.0.0.1:10001', cpus=1.0, gpus=0.5)
    """
    parts = urlsplit(text)
    asked = dict(parse_qsl(parts.query, keep_blank_values=True))
    auto = parts.scheme == "ray" and not parts.netloc and parts.path == "auto"
    client = parts.scheme == "ray" and parts.netloc and ":" in parts.netloc and not parts.path
    slurm = parts.path == SLURM and not parts.scheme and not parts.netloc
    if not (auto or client or slurm) or not asked.keys() <= {"cpus", "gpus"}:
        raise ScenarioError("command line", [Problem("--on", f'"{text}"', _EXPECTED)])
    if not workers:
        raise ScenarioError("command line", [Problem("--workers", str(workers), (
            "expected with --on: how many, over all machines together"))])
    try:
        cpus, gpus = (float(asked.get(name, default)) for name, default in (("cpus", "1"), ("gpus", "0")))
    except ValueError:
        raise ScenarioError("command line", [Problem("--on", f'"{text}"', _EXPECTED)]) from None
    if not (0 <= cpus < 1e6 and 0 <= gpus < 1e6):
        raise ScenarioError("command line", [Problem("--on", f'"{text}"', "expected numbers of 0 or more")])
    if slurm and not (cpus >= 1 and cpus.is_integer() and gpus.is_integer()):
        raise ScenarioError("command line", [Problem("--on", f'"{text}"', (
            "expected whole CPUs, at least one, and whole GPUs"))])
    return Cluster(workers, "auto" if auto else SLURM if slurm else f"ray://{parts.netloc}", cpus, gpus)
