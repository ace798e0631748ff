"""Differential privacy as Flower ships it: the clients clip by a mod, the server adds noise; or clients add it."""

from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod, fixedclipping_mod
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import DifferentialPrivacyClientSideFixedClipping, FedAvg
from quickstart_numpy.client_app import train
from quickstart_numpy.server_app import central_evaluate
from quickstart_numpy.task import get_model, save

client = ClientApp(mods=[fixedclipping_mod])
client.train()(train)

local_client = ClientApp(mods=[LocalDpMod(clipping_norm=1.0, sensitivity=0.1, epsilon=50.0, delta=1e-5)])
local_client.train()(train)

server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Federated averaging of clipped updates, with noise."""
    nodes = len(list(grid.get_node_ids()))
    strategy = DifferentialPrivacyClientSideFixedClipping(
        FedAvg(fraction_evaluate=0.0), noise_multiplier=0.1, clipping_norm=1.0, num_sampled_clients=nodes)
    result = strategy.start(grid=grid, initial_arrays=ArrayRecord(get_model()),
                            train_config=ConfigRecord({"lr": context.run_config["learning-rate"]}),
                            num_rounds=context.run_config["num-server-rounds"], evaluate_fn=central_evaluate)
    save(context.run_config["results"],
         {r: float(m["accuracy"]) for r, m in result.evaluate_metrics_serverapp.items()})
