"""The summary of a run, `summary.json`: what one reads first and what `compare` puts side by side.

With compute times that are given, everything but the `real_*` keys and `versions` is the same from run to run.

The digest of a run (`digest_of_run`) is taken over two others: that of its journal, over every row
(`emul.record.journal`), and that of its models (`digest_model`), over the parameters that nodes reported. Neither
scenario nor tables nor real times are in it.
"""

from __future__ import annotations

import platform
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from importlib import metadata
from math import isfinite
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from emul.base import rows
from emul.base.errors import NotSendable
from emul.base.plain import PlainDict, PlainMapping
from emul.record.columns import Computations, Messages, Table, columns
from emul.record.energy import PowerDraw, energy_of, energy_summary, write_energy
from emul.record.invariants import InvariantReport, check_columns
from emul.record.journal import DIGEST_BYTES, RecordError, read, repeats
from emul.record.realised import LinkRow, costs_not_held
from emul.record.rundir import SUMMARY, RunDirectory, fingerprint, write_json
from emul.record.side_tables import LinkTotal, traffic_summary
from emul.record.tables import (
    DELIVERED,
    FATES,
    IN_FLIGHT,
    LATE,
    LOST,
    REJECTED,
    TO_ENDED,
    Derived,
    Observed,
    Timed,
    derive,
    lost_links,
    write_tables,
)
from emul.roles.analysis import Passage, Realised
from emul.roles.desk import LANE

_TOP_LINKS = 10
_MOST_VIOLATIONS = 100
_PACKAGES = ("emul", "torch", "numpy", "simpy", "networkx", "pyzmq", "safetensors", "msgspec", "pandas", "pyarrow",
             "scikit-learn", "cryptography")


@dataclass(frozen=True)
class Facts:
    """Facts that the journal does not hold, as plain values. Times in ns but `real_seconds`."""

    scheme: str
    virtual_ns: int                                     # the time when the last deciding node returned
    real_seconds: float
    digest_journal: str
    activations: int = 0
    oracle_waits: Mapping[tuple[str, str], int] = field(default_factory=dict)       # (role, where) -> waits
    rounds_missed: Mapping[str, int] = field(default_factory=dict)                  # role -> rounds
    uncharged: Mapping[str, Sequence[int]] = field(default_factory=dict)            # role -> [total, largest] CPU ns
    network_beyond: Mapping[str, int] | None = None     # kind -> draws that a record did not hold; None: no record
    computations_held: Mapping[tuple[str, str], int] = field(default_factory=dict)  # (node, label) -> costs it holds
    models: Mapping[str, int] = field(default_factory=dict)         # node -> round of the last model that it reported
    artefacts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)        # node -> name of an array -> digest
    payloads: Mapping[str, Mapping[str, int]] = field(default_factory=dict)         # type -> messages kept, left out
    poisoned: Sequence[str] = ()                        # nodes that an attack of the scenario has poisoned
    attackers_knew: PlainMapping | None = None          # values computed again; None: they knew nothing of others
    idle: Sequence[str] = ()                            # nodes of the topology that have no role in this scheme
    store: PlainMapping | None = None                   # the use of a store of trainings; None: there was none
    fitted: Mapping[str, int] | None = None             # clients trained as one at most, halved groups; None: no limit
    analysis: Callable[[Realised], PlainMapping] = lambda run: {}       # of what happened: see `emul.roles.analysis`
    label: str = ""                                     # the label of the scenario's entry; "": as the scheme
    parameters: PlainMapping = field(default_factory=dict)          # of the scheme, by the field of its Params
    given: Sequence[str] = ()                           # those of them that the scenario gives
    energy: PowerDraw | None = None                     # the power of devices; None: the scenario has no devices
    background: Sequence[LinkTotal] = ()                # bytes of background traffic on the links
    modules: Sequence[str] = ()                         # with schemes and attacks that are not emul's own
    incomplete: PlainMapping | None = None              # until when, and why it ended; None: it came to its end


# the keys of a summary and their meaning, for readers of `summary.json`; docs/run-directory.md has them as a table
KEYS: dict[tuple[str, ...], str] = {
    ("incomplete",):
        "Of a run that did not come to its end: `until_s` of virtual time, `round`, the last that a deciding node "
        "entered, and `why`. Else null.",
    ("scheme", "label", "seed"): "The scheme, the label of its entry in the scenario, and the seed.",
    ("parameters", "parameters_given"):
        "All parameters of the scheme, by the fields of its `Params`, with units in the names; and those that the "
        "scenario gives.",
    ("rounds",): "Rounds that at least one deciding node completed.",
    ("rounds_failed",): "Failed rounds: entered, and completed by no deciding node.",
    ("first_failure",):
        "Round, node and reason of the first round that a deciding node left without completing it; null: there is "
        "none. `emul run` ends with it if all rounds have failed.",
    ("rounds_ended_by_deadline",):
        "Of `rounds` those in which a wait of a deciding node ended because its deadline came.",
    ("rounds_unanswered",):
        "Of `rounds` those in which deciding nodes sent messages to others and read none of theirs. A run that has "
        "some says so in a warning.",
    ("rounds_missed",): "Followers' rounds that were over before they were done, by role.",
    ("diverged",):
        "Numbers that were not finite (NaN or infinite): updates that nodes could therefore not send, and values of "
        "evaluations. For each `role` and `reason`: how many `nodes`, in how many `rounds` of those `entered`, "
        "`first_node` and `first_round`. A run that has some says so in a warning, and its report has a table.",
    ("accuracy",): "The last one observed; the mean where several nodes were observed in that round; null: none.",
    ("accuracy_of",):
        "The kind of `accuracy`. `global`: one model for all, on the whole test set. `global_per_client`: that model "
        "on test samples that follow each client's labels (`evaluation: {scope: per_client}`). `peer`: each peer's "
        "own model, on the whole test set. `personal`: each client's own model, on its own test samples. `cluster`: "
        "of several models the one of least loss, for each cluster or client. `app`: as a Flower app measures it. "
        "Kinds are not compared with one another. Null: there is no accuracy.",
    ("privacy",):
        "Of schemes whose `analysis` has epsilons: `epsilon_of_a_round` and `epsilon_in_total` by observer, of the "
        "client that has lost most, and `delta`. Null: none.",
    ("models",): "Nodes that left a model, and the round of it.",
    ("artefacts",): "Nodes that kept arrays: their names, and a digest of each file.",
    ("payloads",):
        "For each type of message that `record` names: how many `messages` and `bytes` were kept, and how many "
        "messages were `left_out` because there was no room.",
    ("attack_success",):
        "The last share of triggered test samples that were taken for a backdoor's target; null: no backdoor.",
    ("poisoned",): "The nodes that an attack of the scenario is put into.",
    ("attackers_knew",):
        "If attackers know of others: `population` (`cohort` if the scheme named one, else `clients`), "
        "`computed_again` (how many updates were computed again for them), `equal` (how many of these equal the real "
        "update, to the bit). Else null.",
    ("groups",):
        "Only if the scenario has `groups`. For each group, and for `others`, which are in no group and decide "
        "nothing: `nodes` by name, `computations`, `compute_virtual_seconds`, `messages_sent`, `messages_lost`, "
        "`messages_late`, `bytes_sent` of all together, and the mean `accuracy` of models of their own at the end "
        "(null: they have none).",
    ("idle",): "The nodes of the topology that have no role in this scheme. They were no part of the run.",
    ("accuracy_of_clients",):
        "If several nodes have models of their own: `clients`, their number in the last round; `std`, `min` and "
        "`max` over them; `best_five`, the mean of the five largest means of a round; `rounds_to_converge`, the "
        "first round from which on no mean is more than 0.01 below that (null: the last still is). Else null.",
    ("virtual_seconds",): "When the last deciding node returned.",
    ("bytes_total",): "The sum of `wire_bytes`.",
    ("bytes_retransmitted",): "The part of these that reliable links sent again.",
    ("bytes_payload",):
        "The sum of `payload_bytes` of all copies that took a link, each counted once for all its hops.",
    ("bytes_declared",):
        "The part of `bytes_total` that was declared and not carried, by the sender's role and type of message: "
        "`declared_bytes` once a hop. Empty for a scheme that declares nothing.",
    ("bytes_by_type",): "`wire_bytes` by type of message.",
    ("bytes_by_link",): "The ten links with most bytes: `link`, `bytes`, `messages`, `lost`.",
    ("bytes_background",):
        "Only if links that the run used carried background traffic: `offered_bytes`, `carried_bytes` and "
        "`dropped_bytes` of all these links, and `by_link` the same of the ten links to which most was offered. The "
        "other keys do not count these bytes.",
    ("messages_sent",): "Copies; the next six add up to it.",
    ("messages_delivered", "messages_lost", "messages_late", "messages_to_ended", "messages_in_flight",
     "messages_rejected"):
        "By fate, as in the table.",
    ("violations",):
        "The rejected messages: `role` of the receiver, `type`, `sender`, `reason`, `count`; the most frequent "
        "first, at most 100.",
    ("messages_unread",): "Delivered, but never read; see `unread`.",
    ("compute_virtual_seconds",):
        "Costs of computations, by role and label. A computation that was cut counts with the time that it used.",
    ("seconds_declared",): "The part of these that the scheme stated itself, by role and label.",
    ("utilisation",):
        "For each role and each lane of its computations: the share of the virtual time for which the lane is busy, "
        "the mean over the nodes of the role. A scheme without lanes of its own has one, `compute`.",
    ("oracle_waits",):
        "`role@file:line` of waits without a timeout that ended because fates were known, which a real node could "
        "not know. A scheme without such waits gives every wait a timeout. A run with such waits is marked with `*` "
        "in every table, verdict and figure.",
    ("analysis",):
        "`{name: {\"theory\": x, \"measured\": y}}`: values of the scheme's theory for this run, beside the measured "
        "ones if the run has them (a mean over the rounds entered, or a value that follows from who took part "
        "when). A theory that is null has no closed form. Empty for a scheme without an `analysis`.",
    ("network_beyond",):
        "On a recorded network: the number of draws that the record did not hold, by kind of row (of states, those "
        "that began after its end; computations only if the record holds any). Null: no record.",
    ("activations", "journal_rows"): "The number of activations of roles, and of rows of the journal.",
    ("invariants",): "`hold`, or the list of what is violated.",
    ("digest_journal", "digest_model"): "Over all rows; over the digests of all reported parameters.",
    ("deterministic",):
        "False: the scheme draws randomness that no seed reaches. `digest_journal` and `digest` then leave out what "
        "nodes reported and the models, and accuracy, `analysis` and `digest_model` differ from run to run.",
    ("digest",): "Of both. Two runs with one digest did the same.",
    ("real_seconds",): "Wall time of the run.",
    ("real_store",):
        "The store of trainings: how many results were `found`, `missed` and `stored`; `saved_s`, the CPU seconds "
        "that the found ones had taken; `failure`, the reason why storing ended. null: there was no store.",
    ("real_fused",):
        "How memory limited the clients that were trained as one (`fuse`): `most` at once in a worker, and the "
        "number of groups that met no memory and were `halved`. null: no limit was known or met.",
    ("real_uncharged",): "CPU time of role code outside `compute`, by role: `total_s`, and `max_ms` of one activation.",
    ("versions",):
        "Python, packages, platform. Of schemes and attacks that are not part of emul: their package and its "
        "version, or the digest of their file.",
}


def summarise(run: Derived, facts: Facts, report: InvariantReport | None = None) -> PlainDict:
    """The summary as plain values, ready for JSON."""
    m = run.messages
    fates = np.bincount(m.fate, minlength=len(FATES)).tolist()
    entered = {row["round"] for row in run.rounds}
    completed = {row["round"] for row in run.rounds if row["completed"]}
    theory = compared(facts.analysis(realised(run)), run)
    model, accuracy = digest_model(run.table), final_mean(run.observed, "accuracy")
    by_type = np.bincount(m.kind, m.wire_bytes, len(m.kinds)).astype(np.int64)
    return {
        "scheme": facts.scheme,
        "label": facts.label or facts.scheme,
        "parameters": dict(facts.parameters),
        "parameters_given": list(facts.given),
        "seed": run.header.get("seed"),
        "incomplete": None if facts.incomplete is None else dict(facts.incomplete),
        "rounds": len(completed),
        "rounds_failed": len(entered - completed),
        "first_failure": first_failure(run),
        "rounds_ended_by_deadline": len({row["round"] for row in run.rounds if row["completed"]
                                         and row["deadline_ended"]}),
        "rounds_unanswered": unanswered(run),
        "rounds_missed": dict(sorted(facts.rounds_missed.items())),
        "diverged": diverged(run),
        "accuracy": accuracy,
        "accuracy_of": None if accuracy is None else run.header.get("accuracy_of"),
        "attack_success": final_mean(run.observed, "attack_success"),
        "accuracy_of_clients": accuracy_of_clients(run.observed),
        "poisoned": list(facts.poisoned),
        "attackers_knew": None if facts.attackers_knew is None else dict(facts.attackers_knew),
        "idle": list(facts.idle),
        "models": dict(facts.models),
        "artefacts": {node: dict(names) for node, names in facts.artefacts.items()},
        "payloads": {kind: dict(counts) for kind, counts in facts.payloads.items()},
        "virtual_seconds": facts.virtual_ns / 1e9,
        "bytes_total": int(m.wire_bytes.sum()),
        "bytes_payload": int(m.payload_bytes[m.hops > 0].sum()),
        "bytes_retransmitted": int(m.retransmitted_bytes.sum()),
        "bytes_declared": bytes_declared(m, run.header["roles"]),
        "bytes_by_type": {name: int(by_type[i]) for i, name in sorted(enumerate(m.kinds), key=lambda x: x[1])},
        "bytes_by_link": busiest_links(run),
        **({"bytes_background": traffic_summary(facts.background)} if facts.background else {}),
        "messages_sent": len(m.source),
        "messages_delivered": fates[DELIVERED],
        "messages_lost": fates[LOST],
        "messages_late": fates[LATE],
        "messages_to_ended": fates[TO_ENDED],
        "messages_in_flight": fates[IN_FLIGHT],
        "messages_rejected": fates[REJECTED],
        "violations": violations(run),
        "messages_unread": int(m.unread.sum()),
        "compute_virtual_seconds": compute_seconds(run.computations, run.header["roles"], facts.virtual_ns),
        "seconds_declared": compute_seconds(run.computations, run.header["roles"], facts.virtual_ns,
                                            run.computations.declared),
        "utilisation": lane_shares(run.computations, run.header["roles"], run.header.get("lanes", [LANE]),
                                   facts.virtual_ns),
        **({} if facts.energy is None else {"energy": energy_summary(energy_of(run, facts.energy))}),
        **({"groups": group_summary(run, facts.virtual_ns)} if run.header.get("groups") else {}),
        "oracle_waits": {f"{role}@{where}": n for (role, where), n in sorted(facts.oracle_waits.items())},
        "analysis": theory,
        "privacy": privacy(theory, facts.parameters),
        "network_beyond": network_beyond(run, facts),
        "activations": facts.activations,
        "journal_rows": run.table.count,
        "invariants": "not checked" if report is None else "hold" if not report.violations else
                      [f"{v.name}: {v.detail}" for v in report.violations],
        "deterministic": repeats(run.header),
        "digest": digest_of_run(facts.digest_journal, model if repeats(run.header) else ""),
        "digest_journal": facts.digest_journal,
        "digest_model": model,
        "real_seconds": facts.real_seconds,
        "real_store": None if facts.store is None else dict(facts.store),
        "real_fused": None if facts.fitted is None else dict(facts.fitted),
        "real_uncharged": {role: {"total_s": total / 1e9, "max_ms": largest / 1e6}
                           for role, (total, largest) in sorted(facts.uncharged.items())},
        "versions": versions(facts.modules),
    }


def parameter_columns(summaries: Sequence[PlainMapping]) -> dict[str, list[Any]]:
    """"parameters.X" -> the value in each run, for every X that one of them gives; None: its scheme has no such one.

    >>> parameter_columns([{"parameters": {"t": 4}, "parameters_given": ["t"]},
    ...                    {"parameters": {"t": 7, "d": 1}, "parameters_given": []}])
    {'parameters.t': [4, 7]}
    """
    names = dict.fromkeys(name for s in summaries for name in s["parameters_given"])
    return {f"parameters.{name}": [s["parameters"].get(name) for s in summaries] for name in names}


def compared(analysis: Mapping[str, object], run: Derived) -> dict[str, PlainDict]:
    """{name: {"theory": x, "measured": y}} of what a scheme's `analysis` gave (`emul.roles.analysis`).

    `measured` is there only where the run has it.
    """
    if not analysis:
        return {}
    entered = len({row["round"] for row in run.rounds})
    completed = len({row["round"] for row in run.rounds if row["completed"]})
    sent = np.bincount(run.messages.kind, minlength=len(run.messages.kinds)).tolist()
    measured: dict[str, float] = {f"messages.{kind}": n / entered for kind, n in zip(run.messages.kinds, sent,
                                                                                    strict=True)}
    measured |= {"rounds": float(completed), "failed": 1 - completed / entered}
    found: dict[str, PlainDict] = {}
    for name, value in analysis.items():
        theory, source = value if isinstance(value, tuple) else (value, None)
        found[name] = {"theory": _finite(theory)}
        if isinstance(source, (int, float)):
            found[name]["measured"] = _finite(float(source))
        elif source in measured:
            found[name]["measured"] = measured[source]
        elif source is not None:
            reported = [float(row[source]) for row in run.rounds if isinstance(row.get(source), (bool, int, float))]
            if reported:
                found[name]["measured"] = sum(reported) / len(reported)
            elif source.startswith("messages."):
                found[name]["measured"] = 0.0
    return found


_OF_A_ROUND = re.compile(r"(?:ldp_)?(\w*?)_?epsilon(?:_of_a|)_round")
_OVER_THE_RUN = re.compile(r"(?:ldp_)?(\w*?)_?(?:run_epsilon|epsilon_in_total|epsilon)")


def privacy(analysis: Mapping[str, PlainMapping], parameters: PlainMapping) -> PlainDict | None:
    """The (epsilon, delta) of the client that has lost most, as far as the scheme's analysis has it; None: it has none.

    epsilon_of_a_round, epsilon_in_total: {observer: epsilon}, that of what happened where it is known; rounds are
    composed by the analysis. The observer "all" is whoever sees the models. A scheme that tells "ldp_X_run_epsilon"
    calls the epsilon of a round "ldp_X_epsilon".

    >>> privacy({"client_epsilon_round": {"theory": 3.0}, "client_epsilon": {"theory": 9.5}}, {"delta": 1e-5})
    {'epsilon_of_a_round': {'client': 3.0}, 'epsilon_in_total': {'client': 9.5}, 'delta': 1e-05}
    >>> privacy({"epsilon_in_total": {"theory": 55.7, "measured": 32.5}}, {})
    {'epsilon_of_a_round': {}, 'epsilon_in_total': {'all': 32.5}, 'delta': None}
    """
    of_round, total = dict[str, object](), dict[str, object]()
    runs = any(name.endswith("_run_epsilon") for name in analysis)
    for name, one in analysis.items():
        value = one.get("measured", one.get("theory"))
        if found := _OF_A_ROUND.fullmatch(name):
            of_round[found[1] or "all"] = value
        elif found := _OVER_THE_RUN.fullmatch(name):
            single = runs and not name.endswith("_run_epsilon")
            (of_round if single else total)[found[1] or "all"] = value
    delta = analysis["delta"]["theory"] if "delta" in analysis else parameters.get("delta", parameters.get("ldp_delta"))
    if not of_round and not total:
        return None
    return {"epsilon_of_a_round": of_round, "epsilon_in_total": total, "delta": delta}


def _finite(value: object) -> object:
    """JSON has no infinity."""
    return "infinite" if isinstance(value, float) and value == float("inf") else value


def first_failure(run: Derived) -> str | None:
    """The node and the reason of the first round that a deciding node left without completing it; None: there is none.
    """
    return next((f"round {row['round']} at {row['node_name']}: {row['why']}" for row in run.rounds
                 if not row["completed"] and row["left_ns"] is not None), None)


def diverged(run: Derived) -> list[PlainDict]:
    """Messages that nodes could not send because a number of theirs was not finite, reasons that they reported as
    `diverged`, and evaluations that gave no finite value.

    For each role and reason: nodes and rounds (how many), of entered; first_node and first_round (0: outside of any).
    """
    names, roles = run.header["names"], run.header["roles"]
    seen: dict[tuple[str, str], set[tuple[int, int]]] = {}          # (role, reason) -> (round, node)
    for kind in (rows.LEAVE, rows.FINISH):
        part = run.table[kind]
        for code, why in enumerate(part.texts["why"]):
            failure, _, reason = why.partition(": ")
            if failure == NotSendable.__name__ or "not finite" in reason:
                chosen = part["why"] == code
                rounds = part["round"][chosen] if kind == rows.LEAVE else np.zeros(chosen.sum(), np.int64)
                for number, node in zip(rounds.tolist(), part["node"][chosen].tolist(), strict=True):
                    seen.setdefault((roles[node], reason), set()).add((number, node))
    reported = run.table[rows.REPORT]
    for node, number, values in zip(reported["node"].tolist(), reported["round"].tolist(), reported["values"],
                                    strict=True):
        if isinstance(values.get("diverged"), str):
            seen.setdefault((roles[node], str(values["diverged"])), set()).add((number, node))
    for node, number, values in run.observed:
        for name, value in values.items():
            if isinstance(value, float) and not isfinite(value):
                seen.setdefault((roles[node], f"{name} of its model: {value}"), set()).add((number, node))
    of = len({row["round"] for row in run.rounds})
    return [{"role": role, "reason": reason, "nodes": len({node for _, node in both}),
             "rounds": len({number for number, _ in both}), "entered": of,
             "first_node": names[min(both)[1]], "first_round": min(both)[0]}
            for (role, reason), both in sorted(seen.items(), key=lambda entry: min(entry[1]))]


def unanswered(run: Derived) -> int:
    """Completed rounds in which deciding nodes sent something to others, and none of them read anything of others."""
    m, done = run.messages, [row for row in run.rounds if row["completed"]]
    number, node, entered, left = (np.array([row[key] for row in done], np.int64)
                                   for key in ("round", "node", "entered_ns", "left_ns"))
    others = m.source != m.target
    read = others & (m.fate == DELIVERED) & ~m.unread
    width, key = len(run.header["names"]), number * len(run.header["names"]) + node
    asked = np.isin(key, (m.round * width + m.source)[others])
    # of its round, or of none, or of an older one as asynchronous schemes take it; at the instant between two rounds
    # it may be of either
    got = np.isin(key, (m.round * width + m.target)[read])
    got |= _within(node, entered, left, m.target[read], m.arrived_ns[read])
    got |= _within(node, entered, left, m.target[read], m.arrived_ns[read], earlier=True)
    return len(set(number[asked].tolist()) - set(number[got].tolist()))


def _within(node: np.ndarray, since: np.ndarray, until: np.ndarray, of: np.ndarray, at: np.ndarray,
            earlier: bool = False) -> np.ndarray:
    """(n,) bool, of spans since .. until of nodes, which do not overlap at one node: whether one of the instants `at`,
    each of the node `of`, lies within. A time at which one span ends and another begins lies in the later one; with
    `earlier` in the earlier one."""
    n = len(node)
    order = np.lexsort(((np.arange(n + len(of)) >= n) != earlier, np.concatenate([since, at]),
                        np.concatenate([node, of])))
    newest = np.maximum.accumulate(np.where(order < n, np.arange(len(order)), -1))      # the span that began last
    instants = (order >= n) & (newest >= 0)
    span, instant = order[newest[instants]], order[instants] - n
    inside = (node[span] == of[instant]) & (at[instant] <= until[span])
    found = np.zeros(n, bool)
    found[span[inside]] = True
    return found


def network_beyond(run: Derived, facts: Facts) -> dict[str, int] | None:
    """Counts of draws that a run asked of its recorded network and the record lacked, by kind of row; None: no
    record."""
    if facts.network_beyond is None:
        return None
    held = facts.computations_held
    costs = {"compute_ns": costs_not_held(run.computations, run.header["names"], held)} if held else {}
    return {**facts.network_beyond, **costs}


def final_mean(observed: Observed, name: str) -> float | None:
    """The mean over the nodes that were observed in the last round with such a value; None without any."""
    seen = [(number, node, values[name]) for node, number, values in observed if name in values]
    if not seen:
        return None
    last = max(number for number, _, _ in seen)
    final = [value for _, value in sorted((node, v) for number, node, v in seen if number == last)]
    return float(sum(final) / len(final))


def accuracy_of_clients(observed: Observed) -> PlainDict | None:
    """Of models that several nodes have of their own; None where no round has two of them.

    clients, std, min, max: of the last round, the standard deviation over clients. best_five: mean of the five largest
    means of a round. rounds_to_converge: the first round from which on no mean is more than 0.01 below best_five; null
    if the last is.
    """
    each: dict[int, list[float]] = {}
    for _, number, values in observed:
        if "accuracy" in values:
            each.setdefault(number, []).append(values["accuracy"])
    if not each or max(len(v) for v in each.values()) < 2:
        return None
    means = {number: float(np.mean(v)) for number, v in sorted(each.items())}
    best = float(np.mean(sorted(means.values())[-5:]))
    below = [number for number, mean in means.items() if mean < best - 0.01]
    after = [number for number in means if number > max(below, default=0)]
    final = each[max(each)]
    return {"clients": len(final), "std": float(np.std(final)), "min": min(final), "max": max(final), "best_five": best,
            "rounds_to_converge": min(after, default=None)}


def digest_of_run(journal: str, model: str) -> str:
    """Of the digests of its journal and of its models, in hex; "" for the models of a run that cannot repeat itself."""
    return blake2b(bytes.fromhex(journal) + bytes.fromhex(model), digest_size=DIGEST_BYTES).hexdigest()


def digest_model(table: Table) -> str:
    """Over (round, node, digest) of all reported parameters, in the order of the run."""
    reported = table[rows.REPORT]
    order = np.argsort(reported["time_ns"], kind="stable").tolist()
    digest = blake2b(digest_size=DIGEST_BYTES)
    for i in order:
        if reported["digest"][i]:
            digest.update(msgspec.msgpack.encode(
                (int(reported["round"][i]), int(reported["node"][i]), reported["digest"][i])))
    return digest.hexdigest()


def bytes_declared(m: Messages, roles: Sequence[str]) -> dict[str, dict[str, int]]:
    """{role of the sender: {type: bytes}} that crossed links and were declared, not carried: a part of `bytes_total`.

    Once a hop, as there; what is sent again or spent on packets is not split up.
    """
    found: dict[str, dict[str, int]] = {}
    some = m.declared_bytes > 0
    for node, kind, size in zip(m.source[some].tolist(), m.kind[some].tolist(),
                                (m.declared_bytes * m.hops)[some].tolist(), strict=True):
        types = found.setdefault(roles[node], {})
        types[m.kinds[kind]] = types.get(m.kinds[kind], 0) + size
    return {role: dict(sorted(types.items())) for role, types in sorted(found.items())}


def violations(run: Derived) -> list[PlainDict]:
    """Messages of peers that were rejected: role (of who rejected it), type, sender, reason, count.

    The most frequent first, at most `_MOST_VIOLATIONS` of them; `messages_rejected` counts all.
    """
    m = run.messages
    some = np.flatnonzero(m.fate == REJECTED)
    roles, names = run.header["roles"], run.header["names"]
    found = Counter((roles[target], m.kinds[kind], names[source], m.reasons[reason]) for target, kind, source, reason in
                    zip(*(part[some].tolist() for part in (m.target, m.kind, m.source, m.reason)), strict=True))
    return [{"role": role, "type": kind, "sender": sender, "reason": reason, "count": count}
            for (role, kind, sender, reason), count in
            sorted(found.items(), key=lambda item: (-item[1], item[0]))[:_MOST_VIOLATIONS]]


def compute_seconds(c: Computations, roles: Sequence[str], virtual_ns: int, which: np.ndarray | None = None,
                    ) -> dict[str, dict[str, float]]:
    """{role: {label: seconds of virtual time}}; of a computation that was cut, what it used until then.

    which: (n,) bool, the computations that are counted; None: all.
    """
    until_end = np.clip(virtual_ns - c.start_ns, 0, c.cost_ns)
    used = np.where(c.end_ns >= 0, c.end_ns - c.start_ns, until_end)
    found: dict[str, dict[str, float]] = {}
    role_names = sorted(set(roles))
    role = np.array([role_names.index(r) for r in roles] or [0])[c.node]
    counted = np.ones(len(c.node), bool) if which is None else which
    for code in np.unique(role[counted]).tolist():
        mine = (role == code) & counted
        total = np.bincount(c.label[mine], minlength=len(c.labels)).tolist()
        found[role_names[code]] = {
            label: int(used[mine & (c.label == i)].sum()) / 1e9
            for i, label in sorted(enumerate(c.labels), key=lambda x: x[1]) if total[i]}
    return found


def lane_shares(c: Computations, roles: Sequence[str], lanes: Sequence[str], virtual_ns: int,
                ) -> dict[str, dict[str, float]]:
    """{role: {lane: share of the run for which it is busy, the mean over the role's nodes}}, of lanes that are used."""
    until_end = np.clip(virtual_ns - c.start_ns, 0, c.cost_ns)
    used = np.where(c.end_ns >= 0, c.end_ns - c.start_ns, until_end)
    found: dict[str, dict[str, float]] = {}
    for role in sorted(set(roles)):
        mine = np.isin(c.node, [node for node, one in enumerate(roles) if one == role])
        shares = {lane: int(used[mine & (c.lane == i)].sum()) / (roles.count(role) * virtual_ns)
                  for i, lane in enumerate(lanes) if virtual_ns and (mine & (c.lane == i)).any()}
        found |= {role: shares} if shares else {}
    return found


def busiest_links(run: Derived) -> list[PlainDict]:
    """The links that most bytes crossed, at most ten: name, bytes, copies offered, copies lost."""
    sent, hop = run.table[rows.SEND], run.table[rows.HOP]
    vertex, following, wire = (np.concatenate([sent[f], hop[f]]) for f in ("vertex", "next", "wire"))
    used = vertex >= 0
    keys, place, count = np.unique(vertex[used] << 32 | following[used], return_inverse=True, return_counts=True)
    total = np.zeros(len(keys), np.int64)
    np.add.at(total, place, wire[used])
    again = run.table[rows.RESENT]
    np.add.at(total, np.searchsorted(keys, again["vertex"] << 32 | again["next"]), again["bytes"])
    lost, names = lost_links(run.messages), run.header["network"]
    found = []
    for i in np.lexsort((keys, -total))[:_TOP_LINKS].tolist():
        u, v = int(keys[i]) >> 32, int(keys[i]) & 0xFFFFFFFF
        found.append({"link": f"{names[u]}->{names[v]}", "bytes": int(total[i]), "messages": int(count[i]),
                      "lost": lost[u, v]})
    return found


def versions(modules: Sequence[str] = ()) -> dict[str, str]:
    """The machine and packages of the run; none is imported for it. modules: of schemes and attacks that are not ours;
    of one that no installed package has, the digest of its file."""
    packages = metadata.packages_distributions() if modules else {}         # takes 0.1 s
    theirs: dict[str, str] = {}
    for module in modules:
        owners = packages.get(module.partition(".")[0], ())
        file = getattr(sys.modules.get(module), "__file__", None)
        theirs |= {owner: _version(owner) for owner in owners} or {
            module: "unknown" if file is None else f"blake2b {fingerprint(Path(file))['blake2b']}"}
    return {"python": platform.python_version(), **{package: _version(package) for package in _PACKAGES}, **theirs,
            "platform": platform.platform(), "byteorder": sys.byteorder}


@cache
def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def write_results(directory: RunDirectory, facts: Facts, observed: Observed = (), timed: Timed = (),
                  latencies: Mapping[tuple[int, int], int] | None = None,
                  unordered: Collection[tuple[int, int]] = (),
                  drawn: Iterable[LinkRow] = ()) -> tuple[dict[str, object], InvariantReport]:
    """Everything that follows from a closed journal: tables, summary, invariants, seal; then the mark goes.

    `latencies`: (vertex, next vertex) -> least ns, of the links; `unordered`: those that are not first in, first out.
    drawn: what the links drew, for the table `network`. Raises RecordError.
    """
    source = read(directory.journal)
    table = columns(source)
    if not source.complete:
        raise RecordError(f"{directory.journal}: the journal was not closed")
    report = check_columns(table, source.header, latencies, unordered)     # before: it needs as much again as the rows
    run = derive(table, source.header, observed)
    write_tables(directory.path, run, timed, drawn)
    if facts.energy is not None:
        write_energy(directory.path, energy_of(run, facts.energy))
    summary = summarise(run, facts, report)
    write_json(directory.path / SUMMARY, summary)
    directory.finish()
    return summary, report


# --- the course of a run, for the `analysis` of its scheme: from the journal alone -----------------------------------

def realised(run: Derived) -> Realised:
    """The participants of each round, the messages that were heard, and the reports of nodes. Copies are looked at once
    asked for."""
    m, names = run.messages, run.header["names"]

    def passages(kind: str, which: np.ndarray) -> frozenset[Passage]:
        if kind not in m.kinds:
            return frozenset()
        mine = which & (m.kind == m.kinds.index(kind))
        return frozenset((round_, names[source], names[target]) for round_, source, target in zip(
            m.round[mine].tolist(), m.source[mine].tolist(), m.target[mine].tolist(), strict=True))

    @cache
    def sent(kind: str) -> frozenset[Passage]:
        return passages(kind, np.ones(len(m.kind), bool))

    @cache
    def arrived(kind: str) -> frozenset[Passage]:
        return passages(kind, (m.fate == DELIVERED) & ~m.unread)

    @cache
    def late(kind: str) -> frozenset[Passage]:
        return passages(kind, (m.fate == LATE) | (m.fate == TO_ENDED))

    def reported(name: str) -> dict[tuple[int, str], Any]:
        part = run.table[rows.REPORT]
        return {(round_, names[node]): values[name] for round_, node, values in zip(
            part["round"].tolist(), part["node"].tolist(), part["values"], strict=True) if name in values}

    return Realised(tuple(sorted({row["round"] for row in run.rounds})),
                    tuple(sorted({row["round"] for row in run.rounds if row["completed"]})), sent, arrived, late,
                    reported)


# --- groups of clients, beside those that are in none ---------------------------------------------------------------

OTHERS = "others"               # nodes that are in no group and decide nothing


def named_groups(header: PlainMapping) -> dict[str, list[int]]:
    """Group -> its nodes, in the order of the scenario, then `others`; empty where the scenario has no groups."""
    said: Mapping[str, Sequence[int]] = header.get("groups") or {}
    taken = {node for nodes in said.values() for node in nodes} | set(header.get("deciders", ()))
    rest = [node for node in range(len(header["names"])) if node not in taken]
    return {name: list(nodes) for name, nodes in said.items()} | ({OTHERS: rest} if rest else {}) if said else {}


def group_summary(run: Derived, virtual_ns: int) -> dict[str, PlainDict]:
    """Group -> its nodes by name, and of them together: virtual seconds of computing, messages and bytes that they
    sent, and how many of these messages were lost or late; with models of their own their mean accuracy at the end.
    """
    m, c, names = run.messages, run.computations, run.header["names"]
    until_end = np.clip(virtual_ns - c.start_ns, 0, c.cost_ns)
    used = np.where(c.end_ns >= 0, c.end_ns - c.start_ns, until_end)
    found = {}
    for group, nodes in named_groups(run.header).items():
        sent, computed = np.isin(m.source, nodes), np.isin(c.node, nodes)
        found[group] = {
            "nodes": [names[node] for node in nodes], "computations": int(computed.sum()),
            "compute_virtual_seconds": int(used[computed].sum()) / 1e9, "messages_sent": int(sent.sum()),
            "messages_lost": int((m.fate[sent] == LOST).sum()), "messages_late": int((m.fate[sent] == LATE).sum()),
            "bytes_sent": int(m.wire_bytes[sent].sum()), "accuracy": _last_accuracy(run, set(nodes))}
    return found


def _last_accuracy(run: Derived, nodes: set[int]) -> float | None:
    """The mean over those of these nodes whose models were evaluated, each in its last round; None: of none."""
    last: dict[int, tuple[int, float]] = {}
    for node, number, values in run.observed:
        if node in nodes and "accuracy" in values and number >= last.get(node, (0, 0.0))[0]:
            last[node] = number, values["accuracy"]
    return float(sum(value for _, value in last.values()) / len(last)) if last else None
