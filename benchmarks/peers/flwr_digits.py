"""Flower's simulation (Message API) of the workload, digits_app. Usage: flwr_digits.py CLIENTS ROUNDS [RAY_CPUS]

Everybody takes part in every round; Ray is bound to 127.0.0.1 and nothing is reported to anybody.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from simulation import HERE, quiet, simulate

CLIENTS, ROUNDS = int(sys.argv[1]), int(sys.argv[2])
CPUS = int(sys.argv[3]) if len(sys.argv) > 3 else 2
APP = HERE / "digits_app"

if __name__ == "__main__":
    quiet(APP)
    with tempfile.TemporaryDirectory() as folder:
        said = Path(folder, "said")
        simulate(APP, CLIENTS, CPUS, {"clients": CLIENTS, "num-server-rounds": ROUNDS, "results": str(said)})
        print(said.read_text())
