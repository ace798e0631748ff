"""The trainings of the workload by emul's own code and nothing else: python -m benchmarks.direct CLIENTS EPOCHS ROUNDS

No kernel, no network, no journal, no wire. Each of `--processes P` (default 2) trains every P-th client with
`NodeTask.local_update`, the first one takes the mean and evaluates. Data, shards, initial weights, batches and the mean
are those of a run of `digits.yaml`, so the accuracies are equal to that run's, and this is the training in it.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import time
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from benchmarks.bench_rounds import SCENARIO
from benchmarks.common import cpu_seconds
from benchmarks.turns import Turn
from emul.protocols.updates import Update
from emul.roles import weighted_mean
from emul.scenario import Scenario, load


class Trainer:
    """The clients of one process."""

    def __init__(self, scenario: Scenario, clients: int, own: range):
        import torch

        from emul.learning.task import Task
        from emul.workers.collections import keep_memory

        torch.set_num_threads(1)
        keep_memory()                       # as in a worker
        self.round = 0
        self.task = Task(scenario.task, clients, scenario.seed)
        # node 0 is the server, client i is named so in the keys of its streams
        self._nodes = {i + 1: self.task.for_node(f"client{i + 1}", i, lambda: self.round) for i in own}

    def train(self, number: int, model: np.ndarray) -> dict[int, tuple[np.ndarray, int]]:
        """node -> (after - before, samples)."""
        self.round = number
        return {node: task.local_update(model) for node, task in self._nodes.items()}


def other(scenario: Scenario, clients: int, own: range, rounds: int, pipe: Connection) -> None:
    """A process beside the first one: told the model of each round, answers with its updates."""
    trainer = Trainer(scenario, clients, own)
    for number in range(1, rounds + 1):
        pipe.send(trainer.train(number, pipe.recv()))
    pipe.recv()                             # stays until it has been looked at


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name in ("clients", "epochs", "rounds"):
        parser.add_argument(name, type=int)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--turns", type=int, default=0, help="rounds of a block, see `benchmarks.turns`")
    chosen = parser.parse_args()
    clients, rounds, processes = chosen.clients, chosen.rounds, chosen.processes
    scenario = load(SCENARIO, sets=[f"topology.clients={clients}", f"task.solver.sgd.epochs={chosen.epochs}"])
    spawn = multiprocessing.get_context("spawn")
    pipes: list[Connection] = []
    others: list[Any] = []
    for place in range(1, processes):
        here, there = spawn.Pipe()
        pipes.append(here)
        others.append(spawn.Process(target=other, daemon=True, args=(
            scenario, clients, range(place, clients, processes), rounds, there)))
        others[-1].start()
    trainer = Trainer(scenario, clients, range(0, clients, processes))
    model = trainer.task.initial_parameters()
    marks, accuracies, used, turn = [time.monotonic()], [], 0.0, Turn(chosen.turns)
    for number in range(1, rounds + 1):
        for pipe in pipes:
            pipe.send(model)
        if number > 1:
            accuracies.append(trainer.task.evaluate(model)["accuracy"])
        found = trainer.train(number, model)
        for pipe in pipes:
            found |= pipe.recv()
        model = weighted_mean(model, {node: Update(*update) for node, update in found.items()})
        if number == rounds:
            accuracies.append(trainer.task.evaluate(model)["accuracy"])
        if number == 1:
            used -= cpu_seconds(os.getpid())
        marks.append(time.monotonic())
        turn.ended(number)
    used += cpu_seconds(os.getpid())
    for pipe, process in zip(pipes, others, strict=True):
        pipe.send(None)
        process.join()
    per = [round(b - a, 4) for a, b in itertools.pairwise(marks)]
    print(f"DIRECT clients={clients} rounds={rounds} per_round={per} acc={[round(a, 4) for a in accuracies]} "
          f"cpu={used / max(1, rounds - 1):.4f}")


if __name__ == "__main__":
    main()
