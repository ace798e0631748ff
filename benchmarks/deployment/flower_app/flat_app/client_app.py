"""flat_app: the client."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Move every number a little."""
    moved = [array * 0.99 for array in msg.content["arrays"].to_numpy_ndarrays()]
    return Message(content=RecordDict({"arrays": ArrayRecord(moved), "metrics": MetricRecord({"num-examples": 40})}),
                   reply_to=msg)
