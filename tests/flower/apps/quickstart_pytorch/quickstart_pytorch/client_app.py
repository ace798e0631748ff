"""quickstart_pytorch: the client."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from quickstart_pytorch.task import Net, load_data
from quickstart_pytorch.task import test as test_fn
from quickstart_pytorch.task import train as train_fn

app = ClientApp()


def _given(msg: Message, context: Context):
    """The model that came, and the client's loaders."""
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    me, config = context.node_config["partition-id"], context.run_config
    seed = 1000 * int(msg.content["config"]["server-round"]) + 100_000 * config["seed"] + me
    return model, *load_data(me, context.node_config["num-partitions"], config["batch-size"], seed)


@app.train()
def train(msg: Message, context: Context):
    """Train the model on local data."""
    model, trainloader, _ = _given(msg, context)
    loss = train_fn(model, trainloader, context.run_config["local-epochs"], msg.content["config"]["lr"])
    content = RecordDict({
        "arrays": ArrayRecord(model.state_dict()),
        "metrics": MetricRecord({"train_loss": loss, "num-examples": len(trainloader.dataset)}),
    })
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context):
    """Evaluate the model on local data."""
    model, _, valloader = _given(msg, context)
    loss, accuracy = test_fn(model, valloader)
    metrics = MetricRecord({"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(valloader.dataset)})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=msg)
