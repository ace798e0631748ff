"""Seconds of computing in a round of MP-DP and of its baselines at ResNet20's size, with 5 and with 100 clients.

    python -m benchmarks.mp_dp_costs        # writes docs/reproductions/data/mp_dp_costs.csv

Heavy computations cost as schemes declare: measured costs of one core in `emul.primitives.he`. Light ones (a plain
gradient, one of a disguised model, masks, sums, recovery) are measured here: CPU seconds of one thread, batch of 64.
Half of the clients are honest: tbar = K / 2. A row has a client's gradient, what else a client does, and the server.
`mp_dp` is the preset `sound`, which sends one vector; the published blocks are three of them (compact) or one a class
and two (full), and a gradient for each.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from benchmarks.bench_mp_dp import BATCH, CLASSES, SHAPE, seconds
from benchmarks.common import ROOT, write_rows
from emul.base.streams import generator
from emul.learning import functional
from emul.learning.disguise import BlockScalars, Disguise
from emul.learning.objectives import Batch
from emul.learning.parameters import FlatModule
from emul.learning.residual import resnet20
from emul.primitives import ring
from emul.primitives.crypto.masks import mask_input, sum_ring
from emul.primitives.he import paillier, threshold
from emul.protocols.mp_dp.algebra import SecretsLaw, drawn, recovered
from emul.schemes import hybrid_alpha, pile, tp_smc
from emul.schemes.hybrid_alpha import mife

BITS = 2048
TABLE = ROOT / "docs" / "reproductions" / "data" / "mp_dp_costs.csv"
COLUMNS = ("scheme", "clients", "gradient_s", "client_s", "server_s")


def threshold_seconds(clients: int, up: int, opened: int) -> tuple[float, float]:
    """(a client, the server) of a sum under threshold Paillier: `up` ciphertexts of each client, `opened` decrypted."""
    each, tbar = paillier.seconds(BITS), (clients + 1) // 2
    client = up * each.encrypt + opened * threshold.partial_seconds(BITS, clients)
    return client, (clients - 1) * up * each.add + opened * threshold.combine_seconds(
        BITS, range(1, tbar + 1), clients)


def declared(clients: int, d: int, outputs: int = CLASSES) -> dict[str, tuple[float, float]]:
    """{scheme: (a client, the server)}, in the order of the paper's Table I."""
    found = {"tp_smc": threshold_seconds(clients, *[-(-d // ((BITS - 2) // tp_smc.SLOT))] * 2),
             "hybrid_alpha": (mife.encrypt_seconds(d), mife.decrypt_seconds(d, clients,
                                                                            clients << hybrid_alpha.VALUE))}
    packed = -(-3 * d // ((BITS - 2) // pile.SLOT))
    return found | {"pile, packed": threshold_seconds(clients, packed, packed),
                    "pile, recover_under_he": threshold_seconds(clients, 3 * d, d),
                    "pile": threshold_seconds(clients, 3 * d, 3 * d),
                    "pile, additive: full": threshold_seconds(clients, *[(outputs + 2) * d] * 2)}


def measured(clients: int) -> dict[str, tuple[float, float, float]]:
    """{scheme: (a client's gradient, what else a client does, the server)} of what is light."""
    torch.set_num_threads(1)
    rng = generator(1, "bench/mp_dp costs")
    model = FlatModule(resnet20(SHAPE, CLASSES))
    disguise, true = Disguise(model, SHAPE), model.read()
    batch = Batch(torch.from_numpy(rng.standard_normal((BATCH, *SHAPE), dtype=np.float32)),
                  torch.from_numpy(rng.integers(0, CLASSES, BATCH)))
    known = drawn(disguise, SecretsLaw("log_uniform", 1.5, "off", 1), rng)
    hidden = torch.from_numpy(disguise.disguised(true, known.secrets).astype(np.float32))
    run = disguise.forward(disguise.transitions(known.secrets).astype(np.float32))
    compact = drawn(disguise, SecretsLaw("log_uniform", 1.5, "compact", 1), rng).directions
    one, d = BlockScalars(None, CLASSES, False), model.dimension
    blocks = {"mp_dp": (one, 1), "mp_dp, additive: compact": (BlockScalars(compact, CLASSES, True), 3),
              "mp_dp, additive: full": (BlockScalars(None, CLASSES, True), CLASSES + 2)}
    own = rng.standard_normal(d) * 1e-3
    near = {j: rng.bytes(32) for j in range(2, 2 + min(10, clients - 1))}       # n = 5 picks, and who picked

    def local() -> None:
        functional.gradients(model, torch.from_numpy(true), batch, one)

    def disguised(scalars: BlockScalars) -> None:
        functional.gradients(model, hidden, batch, scalars, run)

    def hide() -> np.ndarray:
        return mask_input(ring.encode(own + rng.normal(0, 0.1, d), 24, 64, clients), 1, rng.bytes(32), near)

    word = hide()

    def unhide() -> None:                       # one self mask a client is expanded again
        total = sum_ring([word] * clients, d, np.uint64)
        for _ in range(clients):
            mask_input(total, 1, bytes(32), {})
        recovered(disguise, known, ring.decode(total, 24)[None])

    took: Callable[[Callable[[], object]], float] = lambda f: seconds(f, 2)     # noqa: E731
    updates, hidden_s = [own.astype(np.float32)] * clients, took(lambda: disguise.disguised(true, known.secrets))
    hide_s, unhide_s = took(hide), took(unhide)
    return {"fedavg": (took(local), 0.0, took(lambda: np.mean(updates, axis=0)))} | {
        name: (took(partial(disguised, scalars)), vectors * hide_s, vectors * unhide_s + hidden_s)
        for name, (scalars, vectors) in blocks.items()}


def main(file: Path = TABLE) -> None:
    d = FlatModule(resnet20(SHAPE, CLASSES)).dimension
    rows = []
    for clients in (5, 100):
        light = measured(clients)
        every = {**light, **{scheme: (light["fedavg"][0], *took) for scheme, took in declared(clients, d).items()}}
        rows += [dict(zip(COLUMNS, (scheme, clients, *took), strict=True)) for scheme, took in every.items()]
    write_rows(file, COLUMNS, rows, ("scheme",))


if __name__ == "__main__":
    main()
