"""strategy: the client."""

import os
from pathlib import Path

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


def started_s() -> float:
    """The seconds since this process began."""
    begun = int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")
    return float(Path("/proc/uptime").read_text().split()[0]) - begun


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Another model; node `raises` raises."""
    start = started_s()
    if int(context.node_config["partition-id"]) == int(context.run_config["raises"]):
        raise ConnectionError("no data")
    model = msg.content["arrays"].to_numpy_ndarrays()[0] + 1 + int(context.node_config["partition-id"])
    metrics = MetricRecord({"num-examples": 1, "start": start})
    return Message(RecordDict({"arrays": ArrayRecord({"w": Array(model)}), "metrics": metrics}), reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    """Nothing is evaluated."""
    return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1, "acc": 0.5})}), reply_to=msg)
