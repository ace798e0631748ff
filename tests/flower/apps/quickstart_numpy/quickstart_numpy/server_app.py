"""quickstart_numpy: the server."""

from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from quickstart_numpy.task import get_model, load_test, save, test

app = ServerApp()


def central_evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """The global model on samples that no client has."""
    loss, accuracy = test(arrays.to_numpy_ndarrays(), *load_test())
    return MetricRecord({"loss": loss, "accuracy": accuracy})


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Federated averaging."""
    strategy = FedAvg(fraction_train=context.run_config["fraction-train"])
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(get_model()),
        train_config=ConfigRecord({"lr": context.run_config["learning-rate"]}),
        num_rounds=context.run_config["num-server-rounds"],
        evaluate_fn=central_evaluate,
    )
    save(context.run_config["results"],
         {r: float(m["accuracy"]) for r, m in result.evaluate_metrics_serverapp.items()})
