"""secaggplus: the server, with secure aggregation or without."""

import torch
from flwr.common import Context, ndarrays_to_parameters
from flwr.server import Grid, LegacyContext, ServerApp, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow

from secaggplus.task import Net, get_weights, load_test, save, set_weights, test

app = ServerApp()
plain = ServerApp()


def run(grid: Grid, context: Context, fit_workflow) -> None:
    """Rounds of training by a workflow; the server evaluates."""
    torch.manual_seed(context.run_config["seed"])
    accuracies: dict[int, float] = {}

    def evaluate(server_round, parameters, config):
        net = Net()
        set_weights(net, parameters)
        loss, accuracies[server_round] = test(net, *load_test())
        return loss, {"accuracy": accuracies[server_round]}

    strategy = FedAvg(fraction_evaluate=0.0, evaluate_fn=evaluate, on_fit_config_fn=lambda r: {"round": r},
                      initial_parameters=ndarrays_to_parameters(get_weights(Net())))
    config = ServerConfig(num_rounds=context.run_config["num-server-rounds"])
    DefaultWorkflow(fit_workflow=fit_workflow)(grid, LegacyContext(context, config=config, strategy=strategy))
    save(context.run_config["results"], accuracies)


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Federated averaging of masked updates."""
    config = context.run_config
    run(grid, context, SecAggPlusWorkflow(num_shares=config["num-shares"],
                                          reconstruction_threshold=config["reconstruction-threshold"],
                                          timeout=config["timeout"] or None))


@plain.main()
def plain_main(grid: Grid, context: Context) -> None:
    """The same without masks."""
    run(grid, context, None)
