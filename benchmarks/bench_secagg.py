"""One round of secure aggregation, really computed: 100 clients, 100,000 parameters, no losses, 2 workers.

CPU seconds of the process tree in the second of two rounds, against a floor: the same arithmetic, training included,
for all parties, done bare in one process, without messages, clock and roles. Encrypted shares go through the server.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.common import Figure, Options, cpu_seconds, main, python, run
from emul.base.streams import generator
from emul.learning import Task
from emul.primitives.crypto.graphs import Closed, complete, degree_and_threshold, published_density, random, ring
from emul.primitives.quantise import Quantiser
from emul.protocols.pairwise import hand
from emul.protocols.pairwise import server as hub
from emul.protocols.pairwise.messages import AdvertiseKeys, Masked, Reveal, Shares, Unmask, id_array
from emul.protocols.sums import codec
from emul.schemes import safelearning
from emul.schemes.safelearning import split, split_client
from emul.schemes.safelearning.groups import draw_groups, group_seed, joined
from emul.schemes.secagg import Params

CLIENTS, ROUNDS = 100, 2
PLUGIN = "benchmarks.flat_task"
RATIO, WALL_S = 1.3, 60.0
SCENARIO = """
emul: 1
name: secagg-bench
seed: 7
topology: {generator: star, clients: CLIENTS}
links: [{match: "*", latency: 10 ms, bandwidth: 100 Mbit/s}]
task: {data: {set: drawn}, partition: {bootstrap: 4}, model: flat, solver: {sgd: {lr: 0.1, steps: 1, batch: 4}}}
compute: {mode: zero}
schemes: [{name: NAME, route: server}]
evaluation: {every: 1000}
stop: {rounds: 2}
"""


def probe(name: str, clients: int, workers: int = 2) -> None:
    """Run it; print CPU and wall seconds of the last round."""
    from emul.engine import run as run_scenario
    from emul.scenario import loads

    marks: list[tuple[float, float]] = []

    def mark(*_: object) -> None:
        marks.append((cpu_seconds(os.getpid()), time.monotonic()))

    text = SCENARIO.replace("NAME", name).replace("CLIENTS", str(clients))
    with tempfile.TemporaryDirectory() as folder:
        result, = run_scenario(loads(text, plugins=[PLUGIN]), workers=workers, out=Path(folder), watch=mark,
                               plugins=[PLUGIN])
    if result.error or result.violations or not result.summary or result.summary["rounds_failed"]:
        raise RuntimeError(result.error or str(result.summary))
    (cpu, wall), (cpu_end, wall_end) = marks[-2:]
    print(f"cpu={cpu_end - cpu:.4f} wall={wall_end - wall:.4f}")


def measured(name: str, clients: int) -> tuple[float, float]:
    """(CPU seconds, seconds) of a round, in processes of its own."""
    done = run(python(f"from benchmarks.bench_secagg import probe; probe({name!r}, {clients})"))
    found = re.search(r"cpu=([\d.]+) wall=([\d.]+)", done.output)
    assert found is not None, done.output
    return float(found[1]), float(found[2])


Round = Callable[[dict[int, Any], np.ndarray, int], np.ndarray]     # (clients' tasks, model, round) -> the next model


def bare(graph: Callable[[list[int]], Closed], t: int, clients: int) -> float:
    """CPU seconds of the arithmetic of one round of pair masks."""
    return warm(lambda nodes, model, round_: _round(graph(list(nodes)), t, nodes, model, round_), clients)


def warm(play: Round, clients: int) -> float:
    """CPU seconds of one round, after one that warms up."""
    task = Task({"data": {"set": "drawn"}, "partition": {"bootstrap": 4}, "model": "flat",
                 "solver": {"sgd": {"lr": 0.1, "steps": 1, "batch": 4}}}, clients, 7, plugins=[PLUGIN])
    nodes = {i: task.for_node(f"client{i}", i - 1, lambda: 1) for i in range(1, clients + 1)}
    model = task.initial_parameters()
    took = 0.0
    for round_ in range(1, ROUNDS + 1):
        begin = time.process_time()
        model = play(nodes, model, round_)
        took = time.process_time() - begin
    return took


def _round(A: Closed, t: int, nodes: dict[int, Any], model: np.ndarray, round_: int) -> np.ndarray:
    coding, U = codec(Params(), len(nodes)), list(nodes)
    rngs = {i: generator(7, "bench", i, round_) for i in U}
    own = {i: hand.new_secrets(rngs[i]) for i in U}
    hands, masked = _shared(A, t, own, rngs, round_), {}
    for i in U:
        update, samples = nodes[i].local_update(model)
        seeds = hand.pair_seeds(i, own[i], hands[i].peers, sorted(A[i]), round_)
        y, _ = hand.masked_input(i, own[i].b, seeds, update, samples, coding.encode)
        masked[i] = Masked(y)
    reveals = {}
    for i in U:
        boxes = {j: Shares(hands[j].boxes[i]) for j in A[i] if j != i}
        request = Unmask(id_array(sorted(A[i])), id_array([]))
        reveals[i] = hand.reveal(i, hands[i], boxes, sorted(A[i]), request, t, round_)
    b, keys = hub.reconstruct(reveals, A, U, U, t, [str(i) for i in range(len(U) + 1)])
    assert not keys
    total, _ = hub.unmasked_sum(masked, b, {})
    return coding.add_mean(model, total, len(U))


def _shared(A: Closed, t: int, own: dict[int, hand.RoundSecrets], rngs: dict[int, np.random.Generator],
            round_: int) -> dict[int, hand.SharedSecrets]:
    """The state of each client once it has shared its secrets with its neighbours."""
    advertised = {i: AdvertiseKeys(secrets.public) for i, secrets in own.items()}
    hands = {}
    for i in own:
        ring_ = hub.key_ring(advertised, sorted(A[i]))
        hand.check_ring(i, own[i], ring_, list(own))
        hands[i] = hand.share_secrets(i, own[i], ring_, t, round_, rngs[i])
    return hands


def _split_round(nodes: dict[int, Any], model: np.ndarray, round_: int) -> np.ndarray:
    """Of SAFELearning, where no group is left out."""
    p, U = safelearning.Params(), list(nodes)
    t, quantiser = safelearning.rules(p).t, Quantiser()
    rngs = {i: generator(7, "bench", i, round_) for i in U}
    own, nonces = {}, {}
    for i in U:
        own[i], nonces[i] = split_client.fresh_secrets(rngs[i])
    seed = group_seed(bytes(32), nonces)
    groups = draw_groups(seed, U, p.group)
    A, inside = joined(seed, groups, p.partners), split.of_groups(groups)
    hands, masked = _shared(A, t, own, rngs, round_), {}
    for i in U:
        update, _ = nodes[i].local_update(model)
        seeds = split_client.both_seeds(i, own[i], hands[i], {split.HIGH: inside[i], split.LOW: A[i]}, round_)
        quantiser.clip_fraction(update)
        b = [secret for _, secret in own[i].vectors]
        masked[i] = split.masked_parts(i, quantiser.quantise(update), p.low_bits, b, seeds)
    shown: dict[int, dict[int, Reveal]] = {split.HIGH: {}, split.LOW: {}}
    for i in U:
        held = hand.opened(i, hands[i], {j: Shares(hands[j].boxes[i]) for j in A[i] if j != i}, round_)
        for vector, reveals in shown.items():
            reveals[i] = hand.asked_shares(held, sorted(A[i]), [], vector)
    names = [str(i) for i in range(len(U) + 1)]
    b_high, b_low = (hub.secrets_of(shown[vector], A, U, U, [], t, names)[0] for vector in (split.HIGH, split.LOW))
    high = {tuple(members): split.group_sum(masked, members, b_high, {}) for members in groups}
    safelearning.flagged_groups(high, p)
    total = (sum(high.values(), np.zeros(model.size, np.uint32)) << np.uint32(p.low_bits)) \
        + split.low_sum(masked, U, b_low, {})
    return model + quantiser.dequantise_mean(total, len(U))


def floors(clients: int) -> dict[str, Callable[[], float]]:
    """{scheme: CPU seconds of its arithmetic}."""
    k, t = degree_and_threshold(clients, 0.1, 0.1)
    rng = np.random.default_rng(7)
    chosen = published_density(clients, 0.1)
    return {"secagg": lambda: bare(complete, 2 * clients // 3 + 1, clients),
            "secagg_plus": lambda: bare(lambda nodes: ring(nodes, k, rng), t, clients),
            "ccesa": lambda: bare(lambda nodes: random(nodes, chosen.p, chosen.t - 1, rng), chosen.t, clients),
            "safelearning": lambda: warm(_split_round, clients)}


def secagg(options: Options) -> Iterable[Figure]:
    """The figures."""
    for name, floor in floors(CLIENTS).items():
        bottom = median(floor() for _ in range(options.repeats))
        runs = [measured(name, CLIENTS) for _ in range(options.repeats)]
        cpu = median(run_[0] for run_ in runs)
        yield Figure(f"{name}, 100 clients, CPU of a round over the floor", cpu / bottom, "", at_most=RATIO,
                     note=f"{cpu:.2f} s, floor {bottom:.2f} s; wall {median(run_[1] for run_ in runs):.1f} s")
    cpu, wall = measured("secagg_plus", 300)
    yield Figure("secagg_plus, 300 clients, a round", wall, "s", at_most=WALL_S, note=f"{cpu:.1f} s of CPU")


if __name__ == "__main__":
    main(secagg, text=__doc__)
