"""What last bits of floats depend on besides the program: the processor and how it is used."""

from __future__ import annotations

import hashlib
import platform
import re
from functools import cache
from pathlib import Path


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
