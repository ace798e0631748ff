"""What is written down does not depend on the last bits of a processor's floats."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LEARNT = ["tests/test_golden.py", "tests/learning"]
PAGES = ["tests/test_attack_impact.py", "tests/test_stragglers_study.py", "tests/test_robustness.py",
         "tests/test_secagg_table.py", "tests/test_secagg_networks.py", "tests/test_secure_costs.py",
         "tests/test_mp_dp_scenarios.py", "tests/test_ppfpl_scenarios.py", "tests/test_fedrfq_scenarios.py",
         "tests/test_ebs_cfl_scenarios.py", "tests/fidelity/test_fidelity_deployment.py", "tests/test_benchmarks.py"]
OF_NUMPY = ("import numpy._core._multiarray_umath as core\n"
            "print(*(name for name in core.__cpu_dispatch__ if core.__cpu_features__[name]))")
NARROW = "import torch; print(torch.backends.cpu.get_cpu_capability())"


def said(*command: str, **more: str) -> str:
    """What a Python of its own prints, with more variables in its environment. Raises AssertionError where it fails."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    done = subprocess.run([sys.executable, *command], cwd=ROOT, env=env | more, capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, f"{done.stdout[-20_000:]}\n{done.stderr[-5_000:]}"
    return done.stdout.strip()


@pytest.mark.release
@pytest.mark.timeout(1200)
@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="names instructions of x86-64")
def test_logs_learning_and_pages_are_the_same_without_the_wide_instructions_of_the_processor() -> None:
    """As on the oldest processor of this kind: PyTorch, oneDNN, MKL, OpenBLAS and NumPy compute in other ways."""
    narrow = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE",
              "OPENBLAS_CORETYPE": "Prescott", "NPY_DISABLE_CPU_FEATURES": said("-c", OF_NUMPY)}
    assert said("-c", NARROW, **narrow) == "DEFAULT"
    said("-m", "pytest", "-m", "not slow", "-p", "no:cacheprovider", *LEARNT, *PAGES, **narrow)
