"""The machine: its cores, and the processor, on which last bits of floats depend besides the program."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import subprocess
from functools import cache
from pathlib import Path


def cores() -> int:
    """The number of cores that this process may use, or of all cores where the system cannot say."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def processor() -> str:
    """Name, features and torch's kernels of the processor: models come out to the bit on machines that agree.

    Imports torch.
    """
    import torch

    return f"{chip()}, {torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}"


def chip() -> str:
    """Name and features of the processor."""
    name, flags = platform.machine(), ""
    with contextlib.suppress(OSError, subprocess.SubprocessError):      # a container may hide all of it
        name, flags = _mac() if platform.system() == "Darwin" else _linux(name)
    features = hashlib.blake2b(flags.encode(), digest_size=4).hexdigest()
    return f"{name} {features}"


def _linux(machine: str) -> tuple[str, str]:
    told = dict(re.findall(r"^(model name|flags)\s*: (.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE))
    return told.get("model name", machine), told.get("flags", "")


def _mac() -> tuple[str, str]:
    """A Mac's processor is told by its name alone."""
    asked = ["sysctl", "-n", "machdep.cpu.brand_string"]
    return subprocess.run(asked, capture_output=True, text=True, check=True, timeout=10).stdout.strip(), ""
