"""Net and label skew of NIID-Bench: Li, Diao, Chen, He, Federated Learning on Non-IID Data Silos, ICDE 2022.

    emul sweep scenarios/published/niid_fashion.yaml --plugin niid

A module for `--plugin`: the net `niid_cnn` and the partition `{niid_labels: beta}`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from torch import nn

LEAST = 10          # samples of the smallest party; with fewer all is drawn again


def niid_cnn(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Section V: 5 x 5 convolutions to 6 and 16 channels, each with 2 x 2 pooling, then 120 and 84 units, all with
    ReLU: 44,426 parameters for images of 28 x 28 and ten classes."""
    return nn.Sequential(nn.Conv2d(input_shape[0], 6, 5), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),                  # (B, 16, 4, 4)
                         nn.Flatten(), nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
                         nn.Linear(84, outputs))


def niid_labels(targets: np.ndarray, columns: Mapping[str, np.ndarray], clients: int, beta: float,
                rng: np.random.Generator) -> list[np.ndarray]:
    """Section IV, p_k ~ Dir(beta): party j has the share p_kj of class k. Who has n / K samples already gets none of
    the classes that follow, as in the authors' code. Sizes differ; no sample is left over or with two parties."""
    while True:
        parts: list[list[np.ndarray]] = [[] for _ in range(clients)]
        sizes = np.zeros(clients, int)
        for label in np.unique(targets):
            own = rng.permutation(np.flatnonzero(targets == label))
            p = rng.dirichlet(np.full(clients, beta)) * (sizes < len(targets) / clients)
            cuts = (np.cumsum(p / p.sum())[:-1] * len(own)).astype(int)
            for part, more in zip(parts, np.split(own, cuts), strict=True):
                part.append(more)
            sizes = np.array([sum(map(len, part)) for part in parts])
        if sizes.min() >= LEAST:
            return [np.sort(np.concatenate(part)) for part in parts]


MODELS = {"niid_cnn": niid_cnn}
PARTITIONS = {"niid_labels": niid_labels}
