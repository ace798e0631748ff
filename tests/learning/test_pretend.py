"""The cases of `pretend_cases.py`, in a process of their own."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


@pytest.mark.slow
def test_a_pretend_device_computes_what_the_cpu_does() -> None:
    """torch makes its queues of gradients once, at the first backward pass of a process, for the devices that it then
    knows: a process that has trained before cannot train on a device that came later."""
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-o",
                           "python_files=pretend_cases.py", str(HERE / "pretend_cases.py")],
                          cwd=HERE.parent.parent, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
