"""The floor: the same workload in one process without a framework. Usage: inproc_floor.py CLIENTS ROUNDS

Like the peers it evaluates after every round, outside of what is timed.
"""

from __future__ import annotations

import sys
import time

import common_task as ct
import torch

clients, rounds = int(sys.argv[1]), int(sys.argv[2])
model = ct.make_net()
accuracies, marks = [], [0.0]
for rnd in range(1, rounds + 1):
    begin = time.perf_counter()
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
    marks.append(marks[-1] + time.perf_counter() - begin)
    accuracies.append(ct.test_acc(model))
print(ct.line("FLOOR", clients, marks, accuracies, model))
