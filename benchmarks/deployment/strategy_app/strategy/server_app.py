"""strategy: the server. Flower's FedAvg; `out`: none, or a file for the seconds of each round."""

import json
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Rounds, each of whose ends is noted."""
    c = context.run_config
    while len(list(grid.get_node_ids())) < int(c["n"]):
        time.sleep(1)
    ends: list[float] = []
    if c["out"]:
        Path(f"{c['out']}.begun").write_text("")
    result = FedAvg(fraction_evaluate=float(c["evaluated"]), min_train_nodes=1, min_evaluate_nodes=1,
                    min_available_nodes=1).start(
        grid, ArrayRecord({"w": Array(np.zeros(int(c["size"]), np.float32))}), num_rounds=int(c["rounds"]),
        evaluate_fn=lambda number, arrays: ends.append(time.monotonic()))
    starts = [dict(found) for found in result.train_metrics_clientapp.values()]
    if c["out"]:
        Path(str(c["out"])).write_text(json.dumps([
            {"seconds": end - begin, "got": [], "start": [one["start"]]}
            for begin, end, one in zip(ends, ends[1:], starts, strict=False)]))
