"""quickstart_sklearn: the client."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from sklearn.metrics import accuracy_score, f1_score, log_loss

from quickstart_sklearn.task import fit, get_model, get_model_params, load_data, set_model_params

app = ClientApp()


def _given(msg: Message, context: Context):
    model = get_model(context.run_config["penalty"], context.run_config["local-epochs"])
    return set_model_params(model, msg.content["arrays"].to_numpy_ndarrays())


@app.train()
def train(msg: Message, context: Context):
    """Train the model on local data."""
    model = _given(msg, context)
    x, _, y, _ = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    fit(model, x, y)
    loss = log_loss(y, model.predict_proba(x), labels=range(10))
    content = RecordDict({
        "arrays": ArrayRecord(get_model_params(model)),
        "metrics": MetricRecord({"num-examples": len(x), "train_logloss": loss}),
    })
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context):
    """Evaluate the model on test data."""
    model = _given(msg, context)
    _, x, _, y = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    said = model.predict(x)
    metrics = {
        "num-examples": len(x),
        "test_logloss": log_loss(y, model.predict_proba(x), labels=range(10)),
        "accuracy": accuracy_score(y, said),
        "f1": f1_score(y, said, average="macro", zero_division=0),
    }
    return Message(content=RecordDict({"metrics": MetricRecord(metrics)}), reply_to=msg)
