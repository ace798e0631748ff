"""The gain of `fuse` in `splitfed`, whose clients have equal bottoms: python -m benchmarks.pieces

Passes through the pieces of n clients, one client after the other and as one stacked call (`emul.learning.stack`), of
bottoms and of tops; then rounds of `splitfed` without `fuse` and with it, which stacks the bottoms. Rounds are of
computations without cost, and of clients whose computations take ten times as long as the server's. The reasons are in
`docs/decisions/pieces-are-stacked-pass-by-pass.md`. CPU time of one thread, the least of the repeats.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch

from emul.learning import Task
from emul.learning.pieces import Piece
from emul.learning.stack import Hidden, Pass, Stack, Values
from emul.learning.training import weighted_end
from emul.scenario import loads
from emul.testing import run_text

CUT, BATCH, ROUNDS = "2", 32, 4
TEXT = f"""
emul: 1
name: pieces
seed: 7
topology: {{generator: star, clients: 2}}
links: [{{match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}}]
task: {{data: {{set: digits}}, partition: iid, model: digits_classic,
        solver: {{sgd: {{lr: 0.1, steps: 5, batch: {BATCH}}}}}}}
compute: {{mode: zero}}
schemes: [{{name: splitfed, cut: {CUT}}}]
stop: {{rounds: 1}}
evaluation: {{every: 1000}}
"""
SLOW = {"client/load": 0.01, "client/forward": 0.005, "client/backward": 0.006, "server/load": 0.001,
        "server/top": 0.0015, "server/average": 0.001, "server/assemble": 0.001}


def least(call: Callable[[], object], repeats: int) -> float:
    """CPU seconds of the quickest one."""
    found = []
    for _ in range(repeats):
        begin = time.process_time()
        call()
        found.append(time.process_time() - begin)
    return min(found)


def passes(pieces: list[Piece], repeats: int) -> tuple[float, float]:
    """CPU seconds of a pass there and back of all of them: (one after the other, stacked). Both ways give the same
    outputs, which is checked."""
    n, layout, rng = len(pieces), pieces[0].layout, np.random.default_rng(1)
    shapes = layout.input_shape, layout.output_shape
    xs, gs = (rng.normal(size=(n, BATCH, *shape)).astype(np.float32) for shape in shapes)
    stack, slices = Stack(layout.module), layout.flat.slices
    weights = torch.stack([piece.weights.clone() for piece in pieces])

    def alone() -> list[np.ndarray]:
        outputs = [piece.forward(0, x) for piece, x in zip(pieces, xs, strict=True)]
        for piece, g in zip(pieces, gs, strict=True):
            piece.backward(0, g)
            piece.collect()
        return outputs

    def stacked() -> list[np.ndarray]:
        leaf, x = weights.clone().requires_grad_(), torch.from_numpy(xs.copy())
        x.requires_grad_(not layout.is_first)
        values = Values((id(t), leaf[:, place].reshape(n, *t.shape)) for t, place in slices)
        hidden = Hidden.rows(x).as_maps() if stack.on_maps else Hidden.rows(x)
        _, outputs = stack(hidden, Pass(values, lambda _, shape: torch.ones(shape), None, BATCH))
        found = [row.clone().numpy() for row in outputs.detach()]
        gradient = torch.from_numpy(gs).reshape(outputs.shape)
        torch.autograd.grad(weighted_end(outputs, gradient), [leaf] if layout.is_first else [leaf, x])
        return found

    for one, other in zip(alone(), stacked(), strict=True):
        np.testing.assert_allclose(one, other.reshape(one.shape), rtol=1e-4, atol=1e-5)
    return least(alone, repeats), least(stacked, repeats)


def rounds_of(clients: int, version: str, costs: dict[str, float] | None, repeats: int,
              ) -> tuple[tuple[float, dict[str, float]], ...]:
    """Of a round of `splitfed` without `fuse` and of one with it, which take turns: CPU seconds, those of its
    computations by label."""
    def run(*sets: str) -> tuple[float, dict[str, float]]:
        begin, spent = time.process_time(), dict[str, float]()
        ran = run_text(TEXT, f"topology.clients={clients}", f"schemes[0].version={version}", f"stop.rounds={ROUNDS}",
                       *sets, costs=costs)
        whole = (time.process_time() - begin) / ROUNDS
        for timing in ran.finished.timings:
            spent[timing.label] = spent.get(timing.label, 0.0) + timing.cpu_ns / 1e9 / ROUNDS
        return whole, spent

    found = [(run(), run(f"fuse={{clients: {clients}, lanes: 1}}")) for _ in range(repeats)]
    return tuple(min(one, key=lambda ran: ran[0]) for one in zip(*found, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[20, 100])
    parser.add_argument("--repeats", type=int, default=7)
    given = parser.parse_args()
    torch.set_num_threads(1)
    run_text(TEXT)                                          # with all imports
    for n in given.clients:
        task = Task(loads(TEXT, "pieces", [f"topology.clients={n}"]).task, n, 7)
        nodes = [task.for_node(f"client{k + 1}", k, lambda: 1) for k in range(n)]
        for name, cut in (("bottom", {"last": CUT}), ("top", {"after": CUT})):
            alone, stacked = passes([node.piece(**cut) for node in nodes], given.repeats)
            print(f"{n} clients, {name}: {1e6 * alone / n:.0f} us a client alone, {1e6 * stacked / n:.0f} us stacked: "
                  f"{alone / stacked:.1f} x", flush=True)
        for version in ("v1", "v2"):
            for called, costs in (("no costs", None), ("slow clients", SLOW)):
                plain, fused = rounds_of(n, version, costs, given.repeats)
                bottoms = [1e3 * (spent["forward"] + spent["backward"]) for _, spent in (plain, fused)]
                print(f"{n} clients, {version}, {called}: {1e3 * plain[0]:.0f} ms a round, fused {1e3 * fused[0]:.0f}: "
                      f"{plain[0] / fused[0]:.2f} x; bottoms {bottoms[0]:.0f} and {bottoms[1]:.0f}, tops "
                      f"{1e3 * plain[1]['top']:.0f}", flush=True)


if __name__ == "__main__":
    main()
