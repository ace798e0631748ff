"""Peak memory (summed PSS) of a command's process tree. Usage: rss_probe.py COMMAND..."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.common import Sampler, pss_bytes

begin = time.monotonic()
with subprocess.Popen(sys.argv[1:], env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL) as process, \
        Sampler(pss_bytes, process.pid) as sampler:
    process.wait()
print(f"peak PSS {sampler.peak / 1e6:.0f} MB, {time.monotonic() - begin:.1f} s")
sys.exit(process.returncode)
