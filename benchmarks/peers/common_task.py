"""The workload that every contender runs: digits, a small CNN, equal iid shards, FedAvg with plain SGD.

Split, initial weights and batch order are the same for all peers, so that their accuracies agree up to the order of
floating-point sums, and only the run time differs. EPOCHS=0: clients do nothing, which is the framework's own cost.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

sys.path.append(str(Path(__file__).resolve().parents[2]))

from benchmarks.common import cpu_seconds  # of the standard library only

torch.set_num_threads(1)
SEED = 1234
EPOCHS = int(os.environ.get("EPOCHS", "5"))


class Net(nn.Module):
    """8 x 8 digits, 3,658 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.fc1 = nn.Linear(64, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        return self.fc2(functional.relu(self.fc1(x.flatten(1))))


@functools.cache
def data() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training inputs and labels (1500), test inputs and labels (297)."""
    digits = load_digits()
    order = np.random.default_rng(SEED).permutation(len(digits.target))
    x = (digits.images / 16.0).astype(np.float32)[order, None]
    y = digits.target.astype(np.int64)[order]
    return x[:1500], y[:1500], x[1500:], y[1500:]


def shard(i: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    x, y, _, _ = data()
    indices = np.array_split(np.arange(len(x)), n)[i]
    return torch.from_numpy(x[indices]), torch.from_numpy(y[indices])


def make_net() -> Net:
    torch.manual_seed(SEED)
    return Net()


def local_train(net: nn.Module, x: torch.Tensor, y: torch.Tensor, rnd: int, cid: int) -> float:
    """Plain SGD, lr 0.2, batch 10; the order is fixed by (round, client). The last loss."""
    order_of = torch.Generator().manual_seed(SEED + 1000 * rnd + cid)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.2)
    loss = torch.zeros(())
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(x), generator=order_of).split(10):
            optimiser.zero_grad()
            loss = functional.cross_entropy(net(x[batch]), y[batch])
            loss.backward()
            optimiser.step()
    return float(loss.detach())


@torch.no_grad()
def test_acc(net: nn.Module) -> float:
    _, _, x, y = data()
    return float((net(torch.from_numpy(x)).argmax(1) == torch.from_numpy(y)).float().mean())


class Clock:
    """Wall clock before the first round and after each; CPU seconds of a process tree over the rounds after the first.

    Evaluation belongs to the round that begins with it, or to the one that it ends: it is within, for everybody.
    """

    def __init__(self, rounds: int, root: int | None = None):
        self.marks: list[float] = []
        self.cpu_s = 0.0
        self._rounds, self._root = rounds, root or os.getpid()

    def mark(self) -> None:
        number = len(self.marks)
        if number == 1:                     # before the wall clock is read, and at the end after it: looking takes time
            self.cpu_s -= cpu_seconds(self._root)
        self.marks.append(time.clock_gettime(time.CLOCK_MONOTONIC))     # real in emul, too, where others are virtual
        if number == self._rounds:
            self.cpu_s += cpu_seconds(self._root)


def line(who: str, clients: int, clock: Clock, accuracies: list[float], net: nn.Module) -> str:
    """The output of a contender."""
    digest = hashlib.sha256()
    for _, value in sorted(net.state_dict().items()):
        digest.update(value.detach().numpy().tobytes())
    per = [round(b - a, 4) for a, b in itertools.pairwise(clock.marks)]
    return (f"{who} clients={clients} rounds={len(per)} per_round={per} acc={[round(a, 4) for a in accuracies]} "
            f"cpu={clock.cpu_s / max(1, len(per) - 1):.4f} sha={digest.hexdigest()[:16]}")
