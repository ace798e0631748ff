"""The most that stacking the pieces of clients could gain in `splitfed`: python -m benchmarks.pieces

Passes through the pieces of n clients, one client after the other as `splitfed` makes them, and as one stacked call
(`emul.learning.stack`); then a round of `splitfed`, and that round if stacked calls took the place of the others. The
reasons are in `docs/decisions/pieces-stay-alone.md`. CPU time of one thread, the least of the repeats.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable

import numpy as np
import torch

from emul.learning import Task
from emul.learning.pieces import Piece
from emul.learning.stack import Hidden, Pass, Stack, Values
from emul.learning.training import weighted_end
from emul.scenario import loads
from emul.testing import run_text

CUT, BATCH = "2", 32
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


def round_of(clients: int, version: str, repeats: int) -> tuple[float, dict[str, float]]:
    """CPU seconds of a round of `splitfed`, and those of its computations by label."""
    def run(rounds: int) -> tuple[float, Counter[str]]:
        begin, spent = time.process_time(), Counter[str]()
        ran = run_text(TEXT, f"topology.clients={clients}", f"stop.rounds={rounds}", f"schemes[0].version={version}")
        whole = time.process_time() - begin
        for timing in ran.finished.timings:
            spent[timing.label] += timing.cpu_ns
        return whole, spent

    found = []
    for _ in range(repeats):
        (short, few), (long, many) = run(1), run(4)
        found.append(((long - short) / 3, {label: (many[label] - few[label]) / 3e9 for label in many}))
    return min(found, key=lambda one: one[0])


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
        gains = {}
        for name, cut in (("bottom", {"last": CUT}), ("top", {"after": CUT})):
            alone, stacked = passes([node.piece(**cut) for node in nodes], given.repeats)
            gains[name] = alone / stacked
            print(f"{n} clients, {name}: {1e6 * alone / n:.0f} us a client alone, {1e6 * stacked / n:.0f} us stacked: "
                  f"{gains[name]:.1f} x")
        for version in ("v1", "v2"):
            whole, spent = round_of(n, version, given.repeats)
            bottoms, tops = spent["forward"] + spent["backward"], spent["top"]
            saved = bottoms * (1 - 1 / gains["bottom"])
            both = saved + tops * (1 - 1 / gains["top"])
            line = (f"{n} clients, {version}: {1e3 * whole:.0f} ms a round, of which bottoms {1e3 * bottoms:.0f}, tops "
                    f"{1e3 * tops:.0f}: {whole / (whole - saved):.2f} x with stacked bottoms")
            # the batches of v2 step one top, each the one that the batch before has left
            print(line + (f", {whole / (whole - both):.2f} x with stacked tops as well" if version == "v1" else ""))


if __name__ == "__main__":
    main()
