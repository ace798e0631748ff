"""The accuracies of a Flower app in Flower's own simulation. Usage: flwr_app.py APP CLIENTS [NAME=VALUE...]

`server=package.module:name client=package.module:name` take the place of the app's own components; what else is given
is the run's configuration (TOML values). The app writes its accuracies where its setting `results` says.
"""

from __future__ import annotations

import json
import sys
import tempfile
import tomllib
from pathlib import Path

from simulation import quiet, simulate


def main(app: Path, clients: int, settings: list[str]) -> None:
    quiet(app)
    given = dict(setting.split("=", 1) for setting in settings)
    names = given.pop("server", None), given.pop("client", None)
    config = {name: tomllib.loads(f"x = {value}")["x"] for name, value in given.items()}
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "accuracies.json"
        simulate(app, clients, 2, {**config, "results": str(results)}, names if all(names) else None)
        print("accuracies", json.dumps({int(k): v for k, v in json.loads(results.read_text()).items()}))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), int(sys.argv[2]), sys.argv[3:])
