"""semi: the client."""

import time

from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Give the model back; node 0 sleeps before."""
    part = int(context.node_config["partition-id"])
    if part == 0:
        time.sleep(float(context.run_config["slow"]))
    metrics = MetricRecord({"part": part, "round": int(msg.content["config"]["round"])})
    return Message(RecordDict({"arrays": msg.content["arrays"], "metrics": metrics}), reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    """Nothing is evaluated."""
    metrics = MetricRecord({"part": int(context.node_config["partition-id"]), "acc": 0.5})
    return Message(RecordDict({"metrics": metrics}), reply_to=msg)
