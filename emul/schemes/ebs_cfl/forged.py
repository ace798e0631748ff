"""Clients of EBS-CFL that encode something else than their update: what the checks must find, and what they cannot."""

from __future__ import annotations

import numpy as np

from emul.learning import NodeTask
from emul.schemes.ebs_cfl.client_role import Trained, honest
from emul.schemes.ebs_cfl.masking import rounds
from emul.schemes.ebs_cfl.masking.blocks import Array
from emul.schemes.ebs_cfl.masking.shape import Shape
from emul.schemes.ebs_cfl.messages import ClientKeys

SCALE = 5.0
PHI = np.pi / 8                         # of `mixed`: where its gain for the attacker is largest


def scaled(shape: Shape, task: NodeTask, said: Trained, keys: ClientKeys, ek1: Array) -> Array:
    """A payload five times as long: the check of the norm finds it."""
    payload = honest(shape, task, said, keys, ek1) - ek1
    return SCALE * payload + ek1


def flat_masks(shape: Shape, task: NodeTask, said: Trained, keys: ClientKeys, ek1: Array) -> Array:
    """All mask rows replaced by their mean, the payload longer by what that saves: `verify: per_client` passes it."""
    flat = np.tile(ek1.mean(0), (shape.segments, 1))
    room = float(np.vdot(ek1, ek1)) + 1 - float(np.vdot(flat, flat))
    return (honest(shape, task, said, keys, ek1) - ek1) * np.sqrt(room) + flat


def mixed(shape: Shape, task: NodeTask, said: Trained, keys: ClientKeys, ek1: Array) -> Array:
    """cos(phi) of its own cluster's update minus sin(phi) of another's: it passes every check, earns the weight of the
    first and pushes the second backwards, unless weights are by cluster."""
    a, b = said.cluster, (said.cluster + 1) % shape.clusters
    other = rounds.unit(task.local_update(said.models[b])[0])
    X = (np.cos(PHI) * shape.segment(rounds.unit(said.update)) @ keys.A[a]
         - np.sin(PHI) * shape.segment(other) @ keys.A[b])
    return X @ keys.ek0 + ek1
