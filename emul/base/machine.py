"""The machine: its cores, and the processor, on which last bits of floats depend besides the program."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from functools import cache
from pathlib import Path


def cores() -> int:
    """How many cores this process may use; where the system cannot say, how many there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def processor() -> str:
    """Name, features and torch's kernels of the processor: models come out to the bit on machines that agree.

    Imports torch.
    """
    import torch

    name, flags = platform.machine(), ""
    if platform.system() == "Linux":
        told = dict(re.findall(r"^(model name|flags)\s*: (.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE))
        name, flags = told.get("model name", name), told.get("flags", "")
    features = hashlib.blake2b(flags.encode(), digest_size=4).hexdigest()
    return f"{name} {features}, {torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}"
