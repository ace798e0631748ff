"""Gradients of ResNet20 in disguise (LMT of MP-DP) beside a plain gradient: CPU seconds of one thread, 32 x 32 inputs.

A batch of 64 random images, float32; the least of some repeats. `sound` takes one gradient of the disguised model, the
compact variant three (G = 1), the full one n_L + 2 = 12.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from benchmarks.common import Figure, Options, main
from emul.base.streams import generator
from emul.learning import functional
from emul.learning.disguise import BlockScalars, Disguise
from emul.learning.objectives import Batch
from emul.learning.parameters import FlatModule
from emul.learning.residual import resnet20
from emul.protocols.mp_dp.algebra import SecretsLaw, drawn

SHAPE, CLASSES, BATCH = (3, 32, 32), 10, 64


def seconds(function: Callable[[], object], repeats: int) -> float:
    """CPU seconds of one call, the least of several."""
    found = []
    for _ in range(repeats + 1):                    # the first warms up
        begin = time.process_time()
        function()
        found.append(time.process_time() - begin)
    return min(found[1:])


def mp_dp(options: Options) -> Iterable[Figure]:
    torch.set_num_threads(1)
    rng = generator(1, "bench/mp_dp")
    model = FlatModule(resnet20(SHAPE, CLASSES))
    disguise = Disguise(model, SHAPE)
    batch = Batch(torch.from_numpy(rng.standard_normal((BATCH, *SHAPE), dtype=np.float32)),
                  torch.from_numpy(rng.integers(0, CLASSES, BATCH)))
    true = model.read()
    known = drawn(disguise, SecretsLaw("chi3", 1.5, "compact", 1), rng)
    hidden = torch.from_numpy(disguise.disguised(true, known.secrets).astype(np.float32))
    run = disguise.forward(disguise.transitions(known.secrets).astype(np.float32))

    def plain() -> None:
        """The loss of the model itself, forward and backward."""
        model.load(true)
        model.module.zero_grad()
        target: Tensor = torch.nn.functional.one_hot(batch.y, CLASSES)
        ((model.module(batch.x) - target).square().sum() / (2 * BATCH)).backward()

    with threadpool_limits(1):
        once = seconds(plain, options.repeats)
        yield Figure("a plain gradient of ResNet20, batch of 64", once, "s")
        for name, directions, additive, most in (("sound", None, False, None), ("compact", known.directions, True, 1.5),
                                                 ("full", None, True, CLASSES + 2.0)):
            scalars = BlockScalars(directions, CLASSES, additive)
            took = seconds(partial(functional.gradients, model, hidden, batch, scalars, run), options.repeats)
            yield Figure(f"LMT of {name} over a plain gradient", took / once, "x", at_most=most, note=f"{took:.2f} s")
        took = seconds(lambda: disguise.disguised(true, known.secrets), options.repeats)
        yield Figure("the server disguises", took, "s", minor=True)


if __name__ == "__main__":
    main(mp_dp, text=__doc__)
