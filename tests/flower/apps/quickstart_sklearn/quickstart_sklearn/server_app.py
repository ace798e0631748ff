"""quickstart_sklearn: the server."""

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from quickstart_sklearn.task import (
    get_model,
    get_model_params,
    load_test,
    save,
    set_initial_params,
    set_model_params,
)

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Federated averaging."""
    model = get_model(context.run_config["penalty"], context.run_config["local-epochs"])
    set_initial_params(model)

    def central_evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        set_model_params(model, arrays.to_numpy_ndarrays())
        return MetricRecord({"accuracy": float(model.score(*load_test()))})

    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=1.0)
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(get_model_params(model)),
        num_rounds=context.run_config["num-server-rounds"],
        evaluate_fn=central_evaluate,
    )
    save(context.run_config["results"],
         {r: float(m["accuracy"]) for r, m in result.evaluate_metrics_serverapp.items()})
