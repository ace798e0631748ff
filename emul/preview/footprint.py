"""An estimate of the memory that a run will take, made before it: `emul explain`.

The needs of a round are seen in one that is run without training (`Weighing`): bytes that are encoded, nodes that take
part, links that are used, what roles keep. The rest is arithmetic on it, with the sizes of emul's own objects as they
were measured (`benchmarks/bench_large.py`, Linux, Python 3.11). Everything is bytes.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from emul.base import rows
from emul.base.rows import Row
from emul.base.streams import torch_stream
from emul.network import Network
from emul.record.journal import encode
from emul.roles.events import Observation
from emul.scenario import Scenario
from emul.workers.core import Core
from emul.workers.jobs import Timing
from emul.workers.twin import Twin

_MB = 10**6
# proportional set sizes without any nodes
_COORDINATOR = 210 * _MB                    # with the fork server, which holds torch
_WORKER = 63 * _MB                          # the memory that a worker does not share with it
_ALONE = 225 * _MB                          # everything in one process
_WRITING = 65 * _MB                         # pandas and pyarrow, once tables are written
_NODE, _NODE_IN_WORKER = 1_400, 250         # a registered node: in the coordinator, in every worker
_ROLE = 3_000                               # a role that waits and is not ended (`Core._rest`)
_ACTIVE, _LINK = 1_500, 1_000               # a node that has taken part, a link that was used
_LISTED = 350                               # a link of a topology that lists its links
_ROWS = 560                                 # per message, while rows are joined to tables
_EVALUATED = 250                            # test samples at once


@dataclass
class RoundFootprint:
    """The needs that one round of a scheme has shown. Roles: name -> of its nodes."""

    encoded: int = 0                        # frames of all messages, a broadcast once
    messages: int = 0
    journal: int = 0                        # rows as they are on disk
    journal_head: int = 0                   # its header, and the rows of nodes that begin
    links: int = 0                          # used
    active: Counter[str] = field(default_factory=Counter)       # nodes that took part
    kept: Counter[str] = field(default_factory=Counter)         # bytes in `node.state` of those
    learning: Counter[str] = field(default_factory=Counter)     # nodes that have trained
    running: int = 0                        # roles that hold a coroutine at the end
    dimension: int = 0                      # d, of the model
    data: int = 0
    data_mapped: bool = True                # shared by all processes
    activations: int = 0                    # of training one batch, or of evaluating


class Weighing(Twin):
    """A twin that notes what a run makes it hold."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = RoundFootprint()

    def finish(self) -> tuple[list[Observation], list[Timing]]:
        self._look(self.core)
        return super().finish()

    def _look(self, core: Core) -> None:
        seen, task = self.seen, core.task
        counted: set[int] = set()           # an object that several hold, such as the first model, counts once
        for node, role, memory in core.memories():
            if memory.round or memory.sent or memory.computed:
                seen.active[role] += 1
                seen.learning[role] += core.has_trained(node)
                seen.kept[role] += state_bytes(memory.state, counted) + core.kept_bytes(node)
        seen.encoded, seen.running = seen.encoded + core.encoded, core.running
        if task is not None:
            arrays = [array for x in (task.data.train_x, task.data.test_x)
                      for array in (x.values() if isinstance(x, dict) else [x])]
            seen.data = sum(array.nbytes for array in arrays)
            seen.data_mapped = all(map(_mapped, arrays))
            seen.dimension = task.dimension
            samples = task.samples(0)
            seen.activations = activations(task.module(), task.examples(1).x,
                                           min(task.solver.batch or samples, samples))


def _mapped(array: object) -> bool:
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap):
            return True
        array = array.base
    return False


def state_bytes(value: object, counted: set[int]) -> int:
    """Bytes of the arrays and byte strings in a state: in dataclasses, mappings, lists, tuples and sets.

    An array that has been counted before, by its identity, is not counted again.
    """
    if isinstance(value, np.ndarray) and isinstance(value.base, np.ndarray):
        return state_bytes(value.base, counted)
    if id(value) in counted:
        return 0
    if isinstance(value, np.ndarray | bytes | bytearray):
        counted.add(id(value))
        return len(value) if isinstance(value, bytes | bytearray) else value.nbytes
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return sum(state_bytes(getattr(value, f.name), counted) for f in dataclasses.fields(value))
    if isinstance(value, Mapping):
        return sum(state_bytes(k, counted) + state_bytes(v, counted) for k, v in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return sum(state_bytes(item, counted) for item in value)
    return 0


def activations(module: Any, x: Any, batch: int) -> int:
    """Bytes of what the layers of a module put out: for a training batch twice, with its gradients; or, if that is
    more, the two largest of an evaluation. x: the inputs of one sample."""
    import torch

    outputs: list[int] = []

    def note(module: torch.nn.Module, args: object, output: object) -> None:
        if isinstance(output, torch.Tensor):
            outputs.append(output.numel() * output.element_size())

    with torch_stream(0, "footprint"), torch.no_grad():
        module.eval()
        for part in module.modules():
            if not list(part.children()):
                part.register_forward_hook(note)
        module(x)
    return max(2 * sum(outputs) * batch, 2 * max(outputs, default=0) * _EVALUATED)


def journal_bytes(header: Mapping[str, object], found: Sequence[Row]) -> tuple[int, int]:
    """On disk: of the header and the nodes' beginnings, and of all other rows; by a sample, since rows are alike."""
    begins = [row for row in found if row[0] == rows.START]
    others = [row for row in found if row[0] != rows.START]
    first, second = (len(encode(some)) / len(some) * len(all_) if (some := all_[::max(1, len(all_) // 1000)]) else 0
                     for all_ in (begins, others))
    return round(len(encode(header)) + first), round(second)


def estimate(scenario: Scenario, network: Network, roles: Mapping[str, int], seen: RoundFootprint, workers: int,
             ) -> dict[str, object]:
    """The memory of a run: bytes by part and in total, of all its processes at their peak; the journal is on disk.

    roles: how many nodes have each. workers: processes, 0: none. Without a limit of rounds every node is taken to take
    part some time, and the tables are those of one round.
    """
    # The process is not measured, because its memory depends on what it did before and a run has several. A dry round
    # is weighed, and the sizes of emul's own objects are measured constants
    # (`test_the_estimate_is_near_what_a_run_takes`).
    limit = scenario.stop.rounds
    rounds = limit or 1
    nodes = sum(roles.values())
    joined = {role: _ever(seen.active[role], count, limit) for role, count in roles.items()}
    growth = {role: joined[role] / seen.active[role] for role in joined if seen.active[role]}
    most = max(growth.values(), default=1.0)
    (_, solver), = scenario.task["solver"].items()
    of_moments = 8 * bool({"adam", "adamw"} & set(scenario.task["solver"])) + 4 * bool(solver.get("momentum"))
    per_model = 12 + of_moments
    learners = sum(seen.learning[role] * by for role, by in growth.items()) if solver.get("keep") else 0
    together = 1 if scenario.fuse is None else scenario.fuse.clients
    crews = max(1, workers)
    parts = {
        "processes": (_COORDINATOR + workers * _WORKER if workers else _ALONE) + _WRITING,
        "nodes": nodes * (_NODE + workers * _NODE_IN_WORKER) + seen.running * _ROLE
        + round(sum(joined.values())) * _ACTIVE,
        "links": round(seen.links * most) * _LINK + network.listed_links * _LISTED,
        "roles": round(sum(seen.kept[role] * by for role, by in growth.items())
                       + learners * of_moments * seen.dimension),
        "messages": 2 * seen.encoded,       # the frames, or what was read of them; and what their senders still hold
        "models": crews * (per_model * seen.dimension + seen.activations * together) + 24 * seen.dimension,
        "data": seen.data * (1 if seen.data_mapped else crews),
        "tables": seen.messages * _ROWS * rounds,
    }
    return {"workers": workers, "rounds": limit, **parts, "total": sum(parts.values()),
            "journal_on_disk": seen.journal_head + seen.journal * rounds}


def _ever(active: int, nodes: int, rounds: int | None) -> float:
    """The expected number of `nodes` that take part at least once, if each round draws `active` of them anew."""
    if not active or rounds is None:
        return float(nodes if active else 0)
    return nodes * (1 - (1 - active / nodes) ** rounds)
