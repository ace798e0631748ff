"""All messages and all computations of a run as arrays: what tables, summary and reports are made from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Messages:
    """All copies of a run as arrays, (n,) each, in the order of sending. Nanoseconds and bytes; -1: null."""

    source: np.ndarray
    seq: np.ndarray
    target: np.ndarray
    kind: np.ndarray                    # codes into `kinds`
    kinds: list[str]
    round: np.ndarray
    payload_bytes: np.ndarray
    declared_bytes: np.ndarray          # of these
    wire_bytes: np.ndarray
    retransmitted_bytes: np.ndarray
    hops: np.ndarray
    sent_ns: np.ndarray
    arrived_ns: np.ndarray
    fate: np.ndarray                    # into `emul.record.tables.FATES`
    lost_ns: np.ndarray
    lost_vertex: np.ndarray
    lost_next: np.ndarray
    unread: np.ndarray                  # bool
    reason: np.ndarray                  # of a rejection: codes into `reasons`; -1: none
    reasons: list[str]


@dataclass(frozen=True)
class Computations:
    """All computations as arrays, (n,) each, in the order in which they began. Nanoseconds; end -1: the run ended."""

    node: np.ndarray
    label: np.ndarray                   # codes into `labels`
    labels: list[str]
    round: np.ndarray
    start_ns: np.ndarray
    cost_ns: np.ndarray
    end_ns: np.ndarray
    work: np.ndarray
    finished: np.ndarray                # bool
    declared: np.ndarray                # bool: the scheme stated the cost
    activity: np.ndarray                # its number at the node; 0: the role itself
    lane: np.ndarray                    # codes into the lanes of the header
