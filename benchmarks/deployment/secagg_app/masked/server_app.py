"""masked: the server. Flower's workflow of SecAgg+; `out`: a file for the seconds of each round."""

import json
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
from flwr.common import Context, ndarrays_to_parameters
from flwr.server import Grid, LegacyContext, ServerApp, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Rounds of four stages, each of whose ends is noted."""
    c = context.run_config
    n = int(c["n"])
    while len(list(grid.get_node_ids())) < n:
        time.sleep(1)
    ends: list[float] = []
    Path(f"{c['out']}.begun").write_text("")
    strategy = FedAvg(fraction_evaluate=0.0, min_fit_clients=n, min_available_clients=n,
                      evaluate_fn=lambda number, arrays, config: ends.append(time.monotonic()),
                      initial_parameters=ndarrays_to_parameters([np.zeros(1000, np.float32)]))
    DefaultWorkflow(fit_workflow=SecAggPlusWorkflow(num_shares=n, reconstruction_threshold=n - 1))(
        grid, LegacyContext(context, config=ServerConfig(num_rounds=int(c["rounds"])), strategy=strategy))
    Path(str(c["out"])).write_text(json.dumps([
        {"seconds": end - begin, "got": [], "start": []} for begin, end in pairwise(ends)]))
