"""The cases of `pretend_cases.py`, in a process of their own."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


@pytest.mark.slow
def test_a_pretend_device_computes_what_the_cpu_does() -> None:
    """A process that knows the device knows it until its end, and torch's `fork_rng` then asks it for states of its
    own."""
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-o",
                           "python_files=pretend_cases.py", str(HERE / "pretend_cases.py")],
                          cwd=HERE.parent.parent, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
