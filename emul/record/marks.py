"""The marks of runs wherever they stand beside others: waits that know fates, an end too soon, training that diverged.

A wait without a timeout ends once the fate of every message is known. No real node can know a loss, so the virtual
times of such a scheme are shorter than any real node's, and not those of a scheme with deadlines.
"""

from __future__ import annotations

from collections.abc import Collection

from emul.base.plain import PlainMapping

MARK = "*"
NOTE = (f"{MARK} waits that know fates: they have no timeout and end when a loss is known, as no real node can; "
        "times are too short beside schemes with deadlines")


def oracle_waits(summary: PlainMapping) -> int:
    """Waits of a run that ended because fates were known."""
    return sum((summary.get("oracle_waits") or {}).values())


def marked(label: str, summary: PlainMapping) -> str:
    """The label of a run as tables and figures show it.

    >>> marked("fedavg", {"oracle_waits": {"server@fedavg.py:33": 2}}), marked("fedavg", {"oracle_waits": {}})
    ('fedavg*', 'fedavg')
    """
    return label + MARK * bool(oracle_waits(summary))


def incomplete(summary: PlainMapping) -> str | None:
    """The mark of a run that did not come to its end, wherever it is shown; None: it came to its end.

    >>> incomplete({"incomplete": {"until_s": 1.5, "round": 3, "why": "interrupted"}})
    'INCOMPLETE: until virtual time 1.500 s, in round 3: interrupted'
    """
    found = summary.get("incomplete")
    if not found:
        return None
    return f"INCOMPLETE: until virtual time {found['until_s']:.3f} s, in round {found['round']}: {found['why']}"


def epsilons(privacy: PlainMapping | None, of: str = "epsilon_in_total") -> str:
    """The epsilons of a run (`emul.record.summary.privacy`) by observer; "": its scheme has none.

    >>> epsilons({"epsilon_in_total": {"server": "unbounded", "client": 32.512}, "delta": 1e-5})
    'server unbounded, client 32.5'
    """
    found = (privacy or {}).get(of) or {}
    if found and {*found.values()} == {"unbounded"}:
        return "unbounded"
    return ", ".join(f"{who} {value if isinstance(value, str) else format(value, '.3g')}"
                     for who, value in found.items())


def in_words(kind: str | None) -> str:
    """The kind of an accuracy (`emul.roles.evaluation.KINDS`) as tables and figures show it; "": a run of before emul
    said it.

    >>> in_words("global_per_client"), in_words(None)
    ('global per client', '')
    """
    return (kind or "").replace("_", " ")


def accuracy_by(kind: str | None) -> str:
    """The word accuracy, with what it is of.

    >>> accuracy_by("personal"), accuracy_by(None)
    ('personal accuracy', 'accuracy')
    """
    return "accuracy" if kind in (None, "none") else f"{in_words(kind)} accuracy"


def mean_text(metric: str, value: float) -> str:
    """A mean of a suite's metric as its tables show it.

    >>> mean_text("accuracy", 0.91234), mean_text("bytes", 12345.6), mean_text("time", 12.345)
    ('0.912', '12,346', '12.3')
    """
    return f"{value:.3f}" if metric == "accuracy" else f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def among(label: str, knowing: Collection[str]) -> str:
    """A label as tables and figures show it; `knowing`: the labels of those that know fates."""
    return label + MARK * (label in knowing)


def diverged(summary: PlainMapping) -> list[str]:
    """Lines on what was not finite: how many nodes, in how many rounds, which of them first, and why.

    >>> print(*diverged({"diverged": [{"role": "client", "reason": "Update: delta: not finite", "nodes": 4,
    ...     "rounds": 3, "entered": 5, "first_node": "client1", "first_round": 1}]}))
    diverged: Update: delta: not finite, of 4 nodes (client) in 3 of 5 rounds, client1 first, in round 1
    """
    return [f"diverged: {one['reason']}, of {one['nodes']:,} node{'s' * (one['nodes'] > 1)} ({one['role']}) in "
            f"{one['rounds']:,} of {one['entered']:,} rounds, {one['first_node']} first, in round "
            f"{one['first_round']:,}" for one in summary.get("diverged", [])]
