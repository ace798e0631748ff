"""secaggplus: the client, and one that fails when it is told to."""

from flwr.client import ClientApp, NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.common import Context, Message

from secaggplus.task import Net, get_weights, load_data, set_weights, test, train


class FlowerClient(NumPyClient):
    """Trains the CNN on the client's share."""

    def __init__(self, context):
        self.config, self.me = context.run_config, context.node_config["partition-id"]
        self.data, self.net = load_data(self.me, context.node_config["num-partitions"]), Net()

    def fit(self, parameters, config):
        set_weights(self.net, parameters)
        seed = 100_000 * self.config["seed"] + 1000 * config["round"] + self.me
        train(self.net, *self.data, self.config["local-epochs"], self.config["learning-rate"], seed)
        return get_weights(self.net), len(self.data[0]), {}

    def evaluate(self, parameters, config):
        set_weights(self.net, parameters)
        loss, accuracy = test(self.net, *self.data)
        return loss, len(self.data[0]), {"accuracy": accuracy}


def client_fn(context: Context):
    return FlowerClient(context).to_client()


STAGES = ("setup", "share_keys", "collect_masked_vectors", "unmask")


def failing_mod(msg: Message, context: Context, call_next) -> Message:
    """Client `drop-client` fails from stage `drop-stage` on, as one that lost its connection then; -1: nobody does."""
    configs = msg.content.config_records.get("secaggplus_configs")
    drop = context.run_config["drop-stage"]
    if (configs is not None and 0 <= drop <= STAGES.index(configs["stage"])
            and context.node_config["partition-id"] == context.run_config["drop-client"]):
        raise ConnectionError(f"gone in stage {configs['stage']}")
    return call_next(msg, context)


app = ClientApp(client_fn, mods=[failing_mod, secaggplus_mod])
plain = ClientApp(client_fn)
