"""The strategies of `flwr.serverapp.strategy`, chosen by `strategy` of the run config."""

from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import adaptiveclipping_mod
from flwr.serverapp import Grid, ServerApp, strategy
from quickstart_numpy.client_app import train
from quickstart_numpy.server_app import central_evaluate
from quickstart_numpy.task import get_model, save

OPTIONS = {"FedAvgM": {"server_momentum": 0.5}, "FedProx": {"proximal_mu": 0.1}, "FedTrimmedAvg": {"beta": 0.2},
           "QFedAvg": {"client_learning_rate": 0.5}, "Krum": {"num_malicious_nodes": 2},
           "MultiKrum": {"num_malicious_nodes": 2, "num_nodes_to_select": 5}, "Bulyan": {"num_malicious_nodes": 2}}
WRAPPERS = {"DifferentialPrivacyServerSideFixedClipping": {"clipping_norm": 1.0},
            "DifferentialPrivacyClientSideFixedClipping": {"clipping_norm": 1.0},
            "DifferentialPrivacyServerSideAdaptiveClipping": {},
            "DifferentialPrivacyClientSideAdaptiveClipping": {}}

client = ClientApp()
client.train()(train)

adaptive_client = ClientApp(mods=[adaptiveclipping_mod])
adaptive_client.train()(train)

server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    """The strategy, without evaluation at the clients."""
    name = context.run_config["strategy"]
    if name in WRAPPERS:
        nodes = len(list(grid.get_node_ids()))
        chosen = getattr(strategy, name)(strategy.FedAvg(fraction_evaluate=0.0), noise_multiplier=0.01,
                                         num_sampled_clients=nodes, **WRAPPERS[name])
    else:
        chosen = getattr(strategy, name)(fraction_evaluate=0.0, **OPTIONS.get(name, {}))
    result = chosen.start(grid=grid, initial_arrays=ArrayRecord(get_model()),
                          train_config=ConfigRecord({"lr": context.run_config["learning-rate"]}),
                          num_rounds=context.run_config["num-server-rounds"], evaluate_fn=central_evaluate)
    save(context.run_config["results"],
         {r: float(m["accuracy"]) for r, m in result.evaluate_metrics_serverapp.items()})
