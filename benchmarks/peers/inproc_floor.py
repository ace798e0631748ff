"""The floor: the same workload in one process without a framework. Usage: inproc_floor.py CLIENTS ROUNDS"""

from __future__ import annotations

import sys

import common_task as ct
import torch

clients, rounds = int(sys.argv[1]), int(sys.argv[2])
model = ct.make_net()
accuracies, clock = [], ct.Clock(rounds)
clock.mark()
for rnd in range(1, rounds + 1):
    total, samples = None, 0
    for i in range(clients):                        # weighted by samples, in the order of the clients
        net = ct.Net()
        net.load_state_dict(model.state_dict())
        x, y = ct.shard(i, clients)
        ct.local_train(net, x, y, rnd=rnd, cid=i)
        weighted = {k: v.numpy() * len(x) for k, v in net.state_dict().items()}
        total = weighted if total is None else {k: total[k] + weighted[k] for k in weighted}
        samples += len(x)
    model.load_state_dict({k: torch.tensor(v / samples) for k, v in (total or {}).items()})
    accuracies.append(ct.test_acc(model))
    clock.mark()
print(ct.line("FLOOR", clients, clock, accuracies, model))
