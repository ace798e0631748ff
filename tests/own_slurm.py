"""A Slurm of two nodes, both this machine, with two CPUs and two pretended GPUs each, and ports and keys of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

# Debian has them in munge, slurmctld, slurmd and slurm-client
_PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "salloc", "scontrol")
_UP_S = 60
_CONFIGURATION = """\
ClusterName=emul
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={controller}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
GresTypes=gpu
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ReturnToService=2
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={first} CPUs=2 RealMemory=4000 Gres=gpu:2 State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={second} CPUs=2 RealMemory=4000 Gres=gpu:2 State=UNKNOWN
PartitionName=p Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP
"""


@contextlib.contextmanager
def own_slurm(folder: Path) -> Iterator[dict[str, str]]:
    """The environment in which commands of Slurm speak to it. Skips where Slurm is not installed, or nobody is root."""
    if missing := [name for name in _PROGRAMS if shutil.which(name) is None]:
        pytest.skip(f"Slurm is not installed: no {', '.join(missing)}")
    if os.geteuid() != 0:
        pytest.skip("daemons of Slurm are started by root")
    for name in ("state", "n1", "n2", "munge"):
        (folder / name).mkdir(parents=True, mode=0o755)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    controller, first, second = _free_ports(3)
    configuration = folder / "slurm.conf"
    configuration.write_text(_CONFIGURATION.format(folder=folder, host=socket.gethostname().partition(".")[0],
                                                   controller=controller, first=first, second=second))
    for number in range(2):                 # Slurm asks for devices, and opens none: these are as /dev/null
        os.mknod(folder / f"gpu{number}", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    (folder / "gres.conf").write_text(f"AutoDetect=off\nName=gpu File={folder}/gpu[0-1] Flags=nvidia_gpu_env\n")
    environment = {**os.environ, "SLURM_CONF": str(configuration)}
    munge = folder / "munge"
    try:
        for command in (["munged", "--force", "--key-file", str(key), "--socket", str(munge / "socket"), "--pid-file",
                         str(munge / "pid"), "--log-file", str(munge / "log"), "--seed-file", str(munge / "seed")],
                        ["slurmctld"], ["slurmd", "-N", "n1"], ["slurmd", "-N", "n2"]):
            subprocess.run(command, env=environment, check=True, timeout=60, capture_output=True)
        until = time.monotonic() + _UP_S
        while _states(environment) != ["idle", "idle"]:
            assert time.monotonic() < until, (folder / "slurmctld.log").read_text()[-2000:]
            time.sleep(0.3)
        yield environment
    finally:
        for name in ("n1.pid", "n2.pid", "slurmctld.pid", "munge/pid"):
            with contextlib.suppress(OSError, ValueError):
                os.kill(int((folder / name).read_text()), signal.SIGTERM)


def _states(environment: dict[str, str]) -> list[str]:
    return subprocess.run(["sinfo", "-h", "-N", "-o", "%t"], env=environment, capture_output=True, text=True,
                          timeout=60).stdout.split()


def _free_ports(n: int) -> list[int]:
    with contextlib.ExitStack() as open_:
        found = [open_.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(n)]
        return [one.getsockname()[1] for one in found]
