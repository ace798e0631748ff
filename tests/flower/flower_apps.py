"""The Flower apps of this folder as scenarios, and what Flower's own simulation says of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from emul.testing import Ran, run_text

APPS = Path(__file__).with_name("apps")
REFERENCE = json.loads(APPS.with_name("reference.json").read_text(encoding="utf-8"))

SCENARIO = """
emul: 1
name: apps
seed: 7
topology: {generator: star, clients: 10}
task: {data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 16}}}
compute: {mode: zero}
schemes: [fedavg]
stop: {rounds: 20}
"""


def app(name: str, components: str = "", **config: Any) -> str:
    """The scheme of an app in this folder. components: the module that has `server` and `client`, or one of them."""
    scheme: dict[str, Any] = {"name": "flower", "app": str(APPS / name), "config": config}
    for part in components.split():
        side, _, ref = part.partition("=")
        scheme[side] = ref
    return json.dumps(scheme)


def play(scheme: str, *sets: str, pool: Any = None) -> Ran:
    """Run it, on ten clients and a network without latency if `sets` do not say more."""
    return run_text(SCENARIO, f"schemes=[{scheme}]", *sets, pool=pool)


def accuracies(ran: Ran) -> list[float]:
    """After each round, as the app has found it."""
    return [row["accuracy"] for row in ran.rounds]


def settings(run: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """(components, config) of a run of the reference, from its command line."""
    pairs = [setting.split("=", 1) for setting in run["settings"]]
    components = " ".join("=".join(pair) for pair in pairs if pair[0] in ("server", "client"))
    return components, {name: json.loads(value) for name, value in pairs if name not in ("server", "client")}
