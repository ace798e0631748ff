"""Cells that are fair in throughput against SimGrid's Wi-Fi (hal-03777726), where SimGrid is installed."""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path

import pytest

from emul.network.links.fluid import Fluid
from emul.network.models.media import MediumSpec

PEER = Path(__file__).resolve().parents[2] / "benchmarks" / "fidelity_wifi_peer.py"
PYTHON = os.environ.get("EMUL_SIMGRID_PYTHON", "/usr/bin/python3")


def theirs(rates: list[int], sizes: list[int]) -> list[float]:
    done = subprocess.run([PYTHON, str(PEER)], input=json.dumps({"rates": rates, "sizes": sizes}),
                          capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    found: list[float] = json.loads(done.stdout[done.stdout.rindex("["):])
    return found


def ours(rates: list[int], sizes: list[int]) -> list[float]:
    fluid = Fluid()
    medium = fluid.add_medium(MediumSpec("cell", "throughput", ((1, 1.0),)))
    for i, (rate, size) in enumerate(zip(rates, sizes, strict=True)):
        fluid.start(0, i, size, [fluid.add_member(medium, i, rate)])
    ends = {}
    while (due := fluid.next_change()) is not None:
        ends |= {one.item: one.exact_ns / 1e9 for one in fluid.completions(due)}
    return [ends[i] for i in range(len(rates))]


@pytest.mark.slow
def test_cells_fair_in_throughput_are_simgrids_wifi():
    try:
        asked = subprocess.run([PYTHON, "-c", "import simgrid"], capture_output=True, text=True, timeout=60,
                               check=False)
    except OSError as error:
        pytest.skip(f"no SimGrid: {error}; Debian: apt-get install python3-simgrid")
    if asked.returncode:
        pytest.skip(f"{PYTHON} has no SimGrid; Debian: apt-get install python3-simgrid")
    draw = random.Random(1)
    cases = [([54_000_000, 24_000_000, 6_000_000], [10**6] * 3), ([54_000_000] * 9 + [6_000_000], [10**6] * 10)]
    for _ in range(10):
        rates = [draw.randrange(10**6, 10**8) for _ in range(draw.randrange(2, 12))]
        cases.append((rates, [draw.randrange(10**5, 10**7) for _ in rates]))
    for rates, sizes in cases:
        assert ours(rates, sizes) == pytest.approx(theirs(rates, sizes), rel=1e-9)
