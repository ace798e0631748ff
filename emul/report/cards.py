"""The cards of a page, (name, value) each, which show what one looks at first: of an ended run, of one that goes, and
of a suite. `emul.report.page` draws those of a report; the live page fetches its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emul.base.plain import PlainMapping
from emul.record.marks import accuracy_by, epsilons, marked
from emul.record.progress import bytes_of, clock, rounded_size, seconds
from emul.report.live.state import RunProgress

Cards = list[tuple[str, str]]


def of_run(summary: PlainMapping, nodes: int) -> Cards:
    """Of a run of so many nodes that has ended, from its summary."""
    s, failed, own = summary, summary.get("rounds_failed", 0), summary.get("accuracy_of_clients")
    return [("scheme", marked(str(s["label"]), s)), _accuracy(s.get("accuracy_of"), s.get("accuracy")),
            *([("mean of the best five rounds", f"{own['best_five']:.3f}")] if own else []),
            *([(f"epsilon in total, delta {s['privacy']['delta']}", said)]
              if (said := epsilons(s.get("privacy"))) else []),
            *([("epsilon of a round", said)] if (said := epsilons(s.get("privacy"), "epsilon_of_a_round")) else []),
            ("virtual time", seconds(s["virtual_seconds"])), ("bytes", bytes_of(s)),
            ("rounds", f"{s['rounds']:,}"), *([("failed rounds", f"{failed:,}")] if failed else []),
            *([("rounds ended by a deadline", f"{ended:,}")] if (ended := s.get("rounds_ended_by_deadline")) else []),
            ("messages lost", f"{s['messages_lost']:,} of {s['messages_sent']:,}"),
            *([("rejected", f"{s['messages_rejected']:,}")] if s["messages_rejected"] else []),
            ("invariants", s["invariants"] if isinstance(s["invariants"], str) else "VIOLATED"),
            ("real time", clock(s["real_seconds"])), ("nodes", f"{nodes:,}"), ("seed", str(s.get("seed")))]


def while_running(state: RunProgress) -> Cards:
    """Of a run that goes, or was cut off, from the rows that its journal has so far."""
    loss, rounds, m = state.newest("loss"), state.stop_rounds, state.messages
    return [("scheme", state.label), ("round", f"{state.entered:,}" + (f" of {rounds:,}" if rounds else "")),
            _accuracy(state.header.get("accuracy_of"), state.newest("accuracy")),
            ("loss", "not observed" if loss is None else f"{loss:.4g}"),
            ("virtual time", seconds(state.now_ns / 1e9)), ("bytes", rounded_size(state.bytes)),
            ("messages lost", f"{m['lost']:,} of {m['sent']:,}"), ("late", f"{m['late']:,}"),
            ("rejected", f"{m['rejected']:,}"), ("real time", clock(state.elapsed_s))]


def of_suite(said: dict[str, Any], networks: Sequence[str], schemes: Sequence[str]) -> Cards:
    """Of a suite, from its study.json, and the networks and schemes that have results."""
    return [("suite", str(said["suite"])), ("task", str(said["task"])), ("networks", str(len(networks))),
            ("schemes", str(len(schemes))), ("seeds", ", ".join(map(str, said["seeds"]))),
            ("baseline", str(said["baseline"]))]


def _accuracy(kind: str | None, value: float | None) -> tuple[str, str]:
    return accuracy_by(kind), "not observed" if value is None else f"{value:.3f}"
