"""A Flower app as `flwr new` lays it out, of a few lines each: for tests that run one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PROJECT = """
[project]
name = "tiny"
version = "1.0.0"

[tool.flwr.app.components]
serverapp = "tiny.server_app:app"
clientapp = "tiny.client_app:app"

[tool.flwr.app.config]
num-server-rounds = 3
[tool.flwr.app.config.solver]
rate = 0.5
"""
SERVER = """
import random, time
import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()

@app.main()
def main(grid: Grid, context: Context) -> None:
    BODY
"""
BODY = ("FedAvg().start(grid, ArrayRecord([np.zeros(4)]), timeout=60, "
        "num_rounds=context.run_config['num-server-rounds'])")
CLIENT = """
import os, random, time
import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()

@app.train()
def train(message: Message, context: Context) -> Message:
    TRAIN
    step = np.float64([random.random(), np.random.rand(), torch.rand(1).item(), context.node_config["partition-id"]])
    model = message.content["arrays"].to_numpy_ndarrays()[0] + step
    content = RecordDict({"arrays": ArrayRecord([model]), "metrics": MetricRecord({"num-examples": 1})})
    return Message(content, reply_to=message)

@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    metrics = {"eval_acc": float(message.content["arrays"].to_numpy_ndarrays()[0][3]), "num-examples": 1}
    return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)
"""
HEAD = """
emul: 1
name: flower
seed: 7
topology: {generator: star, clients: 4}
links:
  - {match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}
task: {data: {set: digits}, partition: iid, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 16}}}
compute: {mode: zero}
stop: {rounds: 3}
schemes:
"""
LOSSY = "links[0].outage={model: bernoulli, p: 0.2, per: message}"

# a client that trains alone, and evaluates nothing
TRAINS = """
import sys, time
from flwr.app import Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()

@app.train()
def train(message, context):
    TRAIN
    return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1})}), reply_to=message)
"""


def write_app(folder: Path, body: str = BODY, train: str = "pass", server: str = SERVER, client: str = CLIENT) -> Path:
    """The folder of an app. body: of its server's main; train: what its clients do before they train."""
    package = folder / "tiny"
    package.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PROJECT)
    (package / "__init__.py").touch()
    (package / "server_app.py").write_text(server.replace("BODY", "\n    ".join(body.strip().splitlines())))
    (package / "client_app.py").write_text(client.replace("TRAIN", "\n    ".join(train.strip().splitlines())))
    return folder


def scenario(*entries: dict[str, Any]) -> str:
    """A scenario in which these entries of the scheme `flower` run."""
    return HEAD + "".join(f"  - {json.dumps({'name': 'flower', **entry})}\n" for entry in entries)
