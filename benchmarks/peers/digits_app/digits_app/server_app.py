"""The server: Flower's FedAvg, evaluating before the first round and after each."""

from __future__ import annotations

import os
from pathlib import Path

import common_task as ct
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    clients, rounds = int(context.run_config["clients"]), int(context.run_config["num-server-rounds"])
    # the process whose tree is measured, where the server app is not run by the topmost one
    clock = ct.Clock(rounds, int(os.environ["CLOCK_ROOT"]) if "CLOCK_ROOT" in os.environ else None)
    accuracies = []

    def evaluate(rnd: int, arrays: ArrayRecord) -> MetricRecord:
        clock.mark()
        net = ct.Net()
        net.load_state_dict(arrays.to_torch_state_dict())
        accuracies.append(ct.test_acc(net))
        return MetricRecord({"acc": accuracies[-1]})

    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients)
    result = strategy.start(grid=grid, initial_arrays=ArrayRecord(ct.make_net().state_dict()), num_rounds=rounds,
                            evaluate_fn=evaluate)
    net = ct.Net()
    net.load_state_dict(result.arrays.to_torch_state_dict())
    Path(str(context.run_config["results"])).write_text(ct.line("FLWR", clients, clock, accuracies[1:], net))
