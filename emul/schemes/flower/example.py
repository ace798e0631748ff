"""A Flower app on the scenario's own task: FedAvg, as one writes it for Flower, from and with `task_of(context)`."""

from __future__ import annotations

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from emul.schemes.flower import task_of

server = ServerApp()
client = ClientApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    """FedAvg of all clients, evaluated by the clients themselves."""
    rounds = int(context.run_config.get("num-server-rounds", 3))
    FedAvg().start(grid, _record(task_of(context).initial_parameters()), num_rounds=rounds, timeout=60)


@client.train()
def train(message: Message, context: Context) -> Message:
    """Local training as the scenario says it."""
    model = message.content["arrays"]["model"].numpy()
    delta, samples = task_of(context).local_update(model)
    content = RecordDict({"arrays": _record(model + delta), "metrics": MetricRecord({"num-examples": samples})})
    return Message(content, reply_to=message)


@client.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """The model on the client's own test samples."""
    task = task_of(context)
    found = task.evaluate_own(message.content["arrays"]["model"].numpy())
    metrics = MetricRecord({**found, "num-examples": task.samples()})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


def _record(model: np.ndarray) -> ArrayRecord:
    return ArrayRecord({"model": Array(model)})
