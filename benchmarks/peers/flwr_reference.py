"""Rewrites tests/flower/reference.json: what Flower's own simulation says of the apps under tests/flower/apps.

Usage, with the interpreter of the peers' environment: flwr_reference.py [NAME...]; without names all are run.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
APPS = HERE.parents[1] / "tests" / "flower" / "apps"
FILE = APPS.parent / "reference.json"
CLIENTS = 10
_PLAIN = ("server=secaggplus.server_app:plain", "client=secaggplus.client_app:plain")
RUNS: dict[str, tuple[str, ...]] = {
    "quickstart_numpy": ("quickstart_numpy", "num-server-rounds=8"),
    "quickstart_sklearn": ("quickstart_sklearn", "num-server-rounds=8"),
    "quickstart_pytorch": ("quickstart_pytorch", "num-server-rounds=8", "local-epochs=1", "learning-rate=0.1"),
    "legacy": ("quickstart_numpy", "num-server-rounds=8", "server=variants.legacy:server",
               "client=variants.legacy:client"),
    "half": ("quickstart_numpy", "num-server-rounds=5", "server=quickstart_numpy.server_app:app",
             "client=variants.half:client"),
    "polling": ("quickstart_numpy", "num-server-rounds=5", "server=variants.polling:server",
                "client=quickstart_numpy.client_app:app"),
    "privacy": ("quickstart_numpy", "num-server-rounds=5", "server=variants.privacy:server",
                "client=variants.privacy:client"),
    "secaggplus": ("secaggplus", "num-server-rounds=5"),
    "secaggplus, plain": ("secaggplus", "num-server-rounds=5", *_PLAIN),
    **{f"secaggplus, client 3 gone in stage {stage}": ("secaggplus", "num-server-rounds=2", f"drop-stage={stage}")
       for stage in range(4)},
}


def accuracies(app: str, *settings: str) -> list[float]:
    """By round; the first one before any training."""
    command = [sys.executable, str(HERE / "flwr_app.py"), str(APPS / app), str(CLIENTS), *settings]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = re.search(r"^accuracies (\{.*\})$", done.stdout, re.MULTILINE)
    if said is None:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr[-3000:]}")
    return list(json.loads(said[1]).values())


def main(names: list[str]) -> None:
    known = json.loads(FILE.read_text())["runs"] if FILE.exists() else {}
    for name in names or RUNS:
        known[name] = {"app": RUNS[name][0], "settings": RUNS[name][1:], "accuracies": accuracies(*RUNS[name])}
        write(known)
        print(name, known[name]["accuracies"], flush=True)


def write(runs: dict[str, object]) -> None:
    versions = {package: importlib.metadata.version(package) for package in ("flwr", "ray", "torch", "numpy",
                                                                             "scikit-learn")}
    said = {"what": "accuracies by round on the server's test samples, Flower's own simulation",
            "command": "python benchmarks/peers/flwr_reference.py", "versions": versions, "clients": CLIENTS,
            "runs": {}}
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(runs[name])}" for name in RUNS if name in runs)
    FILE.write_text(json.dumps(said, indent=1).replace('"runs": {}', f'"runs": {{\n{lines}\n }}') + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
