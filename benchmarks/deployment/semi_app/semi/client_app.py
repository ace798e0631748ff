"""semi: the client."""

import os
import time
from pathlib import Path

from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


def started_s() -> float:
    """The seconds since this process began."""
    begun = int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")
    return float(Path("/proc/uptime").read_text().split()[0]) - begun


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Give the model back; the first `sleepers` nodes sleep before."""
    part, start = int(context.node_config["partition-id"]), started_s()
    if part < int(context.run_config["sleepers"]):
        time.sleep(float(context.run_config["slow"]))
    metrics = MetricRecord({"part": part, "round": int(msg.content["config"]["round"]), "start": start})
    return Message(RecordDict({"arrays": msg.content["arrays"], "metrics": metrics}), reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    """Nothing is evaluated."""
    metrics = MetricRecord({"part": int(context.node_config["partition-id"]), "acc": 0.5})
    return Message(RecordDict({"metrics": metrics}), reply_to=msg)
