"""quickstart_numpy: the client."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from quickstart_numpy.task import load_data
from quickstart_numpy.task import test as test_fn
from quickstart_numpy.task import train as train_fn

app = ClientApp()


@app.train()
def train(msg: Message, context: Context):
    """Train the model on local data."""
    x, y = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    model, loss = train_fn(msg.content["arrays"].to_numpy_ndarrays(), x, y, context.run_config["local-epochs"],
                           msg.content["config"]["lr"])
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(x)})
    return Message(content=RecordDict({"arrays": ArrayRecord(model), "metrics": metrics}), reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context):
    """Evaluate the model on local data."""
    x, y = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    loss, accuracy = test_fn(msg.content["arrays"].to_numpy_ndarrays(), x, y)
    metrics = MetricRecord({"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(x)})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=msg)
