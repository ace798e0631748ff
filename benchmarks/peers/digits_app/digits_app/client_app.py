"""The client: local training of common_task.py."""

from __future__ import annotations

import common_task as ct
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(msg: Message, context: Context) -> Message:
    me = int(context.node_config["partition-id"])
    net = ct.Net()
    net.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    x, y = ct.shard(me, int(context.node_config["num-partitions"]))
    loss = ct.local_train(net, x, y, rnd=int(msg.content["config"]["server-round"]), cid=me)
    content = {"arrays": ArrayRecord(net.state_dict()), "metrics": MetricRecord({"loss": loss, "num-examples": len(x)})}
    return Message(RecordDict(content), reply_to=msg)
