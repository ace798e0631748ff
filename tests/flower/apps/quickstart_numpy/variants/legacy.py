"""The API before messages: `client_fn` with a NumPyClient, `server_fn` with a strategy of `flwr.server`."""

from flwr.client import ClientApp, NumPyClient
from flwr.common import Context, ndarrays_to_parameters
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from quickstart_numpy.task import get_model, load_data, load_test, save, test, train


class FlowerClient(NumPyClient):
    """Softmax regression on the client's share."""

    def __init__(self, data, epochs):
        self.data, self.epochs = data, epochs

    def fit(self, parameters, config):
        model, loss = train(parameters, *self.data, self.epochs, config["lr"])
        return model, len(self.data[0]), {"train_loss": loss}

    def evaluate(self, parameters, config):
        loss, accuracy = test(parameters, *self.data)
        return loss, len(self.data[0]), {"accuracy": accuracy}


def client_fn(context: Context):
    data = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    return FlowerClient(data, context.run_config["local-epochs"]).to_client()


def server_fn(context: Context):
    accuracies = {}

    def evaluate(server_round, parameters, config):
        loss, accuracies[server_round] = test(parameters, *load_test())
        save(context.run_config["results"], accuracies)
        return loss, {"accuracy": accuracies[server_round]}

    strategy = FedAvg(fraction_fit=context.run_config["fraction-train"], evaluate_fn=evaluate,
                      on_fit_config_fn=lambda server_round: {"lr": context.run_config["learning-rate"]},
                      initial_parameters=ndarrays_to_parameters(get_model()))
    return ServerAppComponents(strategy=strategy, config=ServerConfig(context.run_config["num-server-rounds"]))


client = ClientApp(client_fn)
server = ServerApp(server_fn=server_fn)
