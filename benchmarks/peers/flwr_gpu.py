"""A Flower app that trains ResNet-18 on one GPU: seconds a round. Usage: flwr_gpu.py CLIENTS ACTORS ROUNDS [DEVICE]

Each client makes `benchmarks.bench_gpu.bare`'s trainings: 5 steps of 32 images of 3 x 32 x 32, FedAvg over all clients.
Flower runs them in its own simulation, with so many actors of Ray that share the GPU.
"""

from __future__ import annotations

import json
import os
import sys
import time
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]
os.environ.update(FLWR_TELEMETRY_ENABLED="0", RAY_USAGE_STATS_ENABLED="0", RAY_DISABLE_METRICS_COLLECTION="1",
                  OMP_NUM_THREADS="1", PYTHONPATH=os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))

STEPS, BATCH = 5, 32
_kept: dict = {}


def built(device: str):
    import torch

    from emul.learning.models import create

    if not _kept:
        torch.manual_seed(1)
        net = create("resnet18", (3, 32, 32), 10, 1).to(device)
        x = torch.randn(STEPS * BATCH, 3, 32, 32, device=device)
        _kept.update(net=net, x=x, y=torch.randint(0, 10, (STEPS * BATCH,), device=device))
    return _kept["net"], _kept["x"], _kept["y"]


def client_app(device: str):
    import torch
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.train()
    def train(message, context):
        net, x, y = built(device)
        net.load_state_dict(message.content["arrays"].to_torch_state_dict())
        net.train()
        optimiser, loss = torch.optim.SGD(net.parameters(), lr=0.05), torch.nn.CrossEntropyLoss()
        for i in range(0, len(y), BATCH):
            optimiser.zero_grad()
            loss(net(x[i:i + BATCH]), y[i:i + BATCH]).backward()
            optimiser.step()
        return Message(content=RecordDict({"arrays": ArrayRecord(net.state_dict()),
                                           "metrics": MetricRecord({"num-examples": len(y)})}), reply_to=message)

    return app


def server_app(clients: int, rounds: int, device: str):
    from flwr.app import ArrayRecord
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg

    app = ServerApp()

    @app.main()
    def main(grid, context):
        net, _, _ = built("cpu")
        times = []

        def evaluate(round_, arrays):
            times.append(time.perf_counter())

        strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=clients,
                          min_available_nodes=clients)
        strategy.start(grid=grid, initial_arrays=ArrayRecord(net.state_dict()), num_rounds=rounds,
                       evaluate_fn=evaluate, timeout=3600)
        print("rounds", json.dumps([round(b - a, 3) for a, b in pairwise(times)]), flush=True)

    return app


def main(clients: int, actors: int, rounds: int, device: str = "cuda") -> None:
    import flwr.simulation

    gpus = 0.0 if device == "cpu" else 1 / actors
    cores = len(os.sched_getaffinity(0))
    flwr.simulation.run_simulation(
        server_app(clients, rounds, device), client_app(device), clients,
        backend_config={"client_resources": {"num_cpus": max(1, cores // actors), "num_gpus": gpus},
                        "init_args": {"num_cpus": cores, "include_dashboard": False, "log_to_driver": False,
                                      "_node_ip_address": "127.0.0.1", **({"num_gpus": 1} if gpus else {})}})


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]), *sys.argv[4:])
