"""Flower's simulation (Message API) of the workload. Usage: flwr_digits.py CLIENTS ROUNDS [RAY_CPUS]

Everybody takes part in every round; Ray is bound to 127.0.0.1 and nothing is reported to anybody.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = str(Path(__file__).resolve().parent)
os.environ.update(FLWR_TELEMETRY_ENABLED="0", RAY_USAGE_STATS_ENABLED="0", RAY_DISABLE_METRICS_COLLECTION="1",
                  PYTHONPATH=os.pathsep.join([HERE, os.environ.get("PYTHONPATH", "")]))      # for Ray's actors

import common_task as ct  # noqa: E402
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.serverapp import Grid, ServerApp  # noqa: E402
from flwr.serverapp.strategy import FedAvg  # noqa: E402
from flwr.simulation import run_simulation  # noqa: E402

CLIENTS, ROUNDS = int(sys.argv[1]), int(sys.argv[2])
CPUS = int(sys.argv[3]) if len(sys.argv) > 3 else 2

client = ClientApp()
server = ServerApp()
said: list[str] = []


@client.train()
def train(msg: Message, context: Context) -> Message:
    me = int(context.node_config["partition-id"])
    net = ct.Net()
    net.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    x, y = ct.shard(me, int(context.node_config["num-partitions"]))
    loss = ct.local_train(net, x, y, rnd=int(msg.content["config"]["server-round"]), cid=me)
    content = {"arrays": ArrayRecord(net.state_dict()), "metrics": MetricRecord({"loss": loss, "num-examples": len(x)})}
    return Message(RecordDict(content), reply_to=msg)


@server.main()
def main(grid: Grid, context: Context) -> None:
    clock, accuracies = ct.Clock(ROUNDS), []

    def evaluate(rnd: int, arrays: ArrayRecord) -> MetricRecord:     # before the first round and after each
        clock.mark()
        net = ct.Net()
        net.load_state_dict(arrays.to_torch_state_dict())
        accuracies.append(ct.test_acc(net))
        return MetricRecord({"acc": accuracies[-1]})

    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=CLIENTS, min_available_nodes=CLIENTS)
    result = strategy.start(grid=grid, initial_arrays=ArrayRecord(ct.make_net().state_dict()), num_rounds=ROUNDS,
                            evaluate_fn=evaluate)
    net = ct.Net()
    net.load_state_dict(result.arrays.to_torch_state_dict())
    said.append(ct.line("FLWR", CLIENTS, clock, accuracies[1:], net))


if __name__ == "__main__":
    run_simulation(server_app=server, client_app=client, num_supernodes=CLIENTS, backend_config={
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        "init_args": {"num_cpus": CPUS, "include_dashboard": False, "log_to_driver": False,
                      "_node_ip_address": "127.0.0.1"}})
    print(said[0])
