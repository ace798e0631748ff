"""flat_app: the server."""

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

PARAMETERS = 100_000

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Federated averaging, without evaluations."""
    FedAvg(fraction_evaluate=0.0).start(
        grid=grid, initial_arrays=ArrayRecord([np.ones(PARAMETERS, np.float32)]),
        num_rounds=context.run_config["num-server-rounds"])
