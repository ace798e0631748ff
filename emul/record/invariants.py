"""The invariant report: what must hold of every run, recomputed from the journal's rows.

Nothing of the kernel is used here, so a bug there shows. The network says of each link its least latency and whether
it keeps the order of messages. Each check counts what breaks it and names the first case.
In the texts below a copy of a message is `source:seq`; an *offer* is one copy on one link (a SEND or a HOP row).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from emul.base import rows
from emul.base.plain import PlainMapping
from emul.base.rows import Row
from emul.message.wire import ENVELOPE_BYTES
from emul.record.columns import KeyIndex, Table, columns, copy_keys
from emul.record.tables import computations_of

_NEVER = np.iinfo(np.int64).max
_ACTIVATIONS = (rows.START, rows.RESUME, rows.ENTER, rows.COMPUTED)
# rows of a copy, but for the one in which it is sent
_OF_COPIES = (rows.HOP, rows.DELIVER, rows.LOST, rows.LATE, rows.UNREAD, rows.RESENT, rows.DECLARED,
              rows.REJECT)
_ACTIONS = (rows.SEND, rows.COMPUTE, rows.LEAVE, rows.REPORT, rows.FINISH, rows.ABSTAIN, rows.ACTIVITY, rows.DONE)


@dataclass(frozen=True)
class Invariant:
    """One statement about the run. `count`: cases that break it; `detail`: the first one, or what was looked at."""

    name: str
    holds: bool
    detail: str
    count: int


class InvariantReport(list[Invariant]):
    """All invariants of a run, in a fixed order."""

    @property
    def violations(self) -> list[Invariant]:
        return [one for one in self if not one.holds]

    def text(self) -> str:
        """A line for each, aligned; behind those broken by several cases, how many."""
        width = max((len(one.name) for one in self), default=0)
        return "\n".join(f"{'holds ' if one.holds else 'BROKEN'}  {one.name.ljust(width)}  {one.detail}"
                         + (f" ({one.count} cases)" if one.count > 1 else "") for one in self)


def check(source: Iterable[Row], header: PlainMapping, latencies: Mapping[tuple[int, int], int] | None = None,
          unordered: Collection[tuple[int, int]] = ()) -> InvariantReport:
    """Check the rows of a run.

    latencies: (vertex, next vertex) -> ns, the least of that link; a link without: 0. unordered: links that are not
    first in, first out.
    """
    return check_columns(columns(source), header, latencies, unordered)


def check_columns(table: Table, header: Mapping[str, object], latencies: Mapping[tuple[int, int], int] | None = None,
                  unordered: Collection[tuple[int, int]] = ()) -> InvariantReport:
    """As `check`, for a journal that is already in columns."""
    run = _Run(table, header, latencies or {}, unordered)
    return InvariantReport([_one_fate(run), _unbroken_routes(run), _bytes_conserved(run), _latency_kept(run),
                            _link_order(run), _activations_in_order(run), _actions_at_activations(run), _silence(run),
                            _deliveries_to_the_living(run), _dropped_out(run), _rejected_once(run), _rounds_grow(run),
                            _lanes_take_turns(run)])


class _Run:
    """The rows of a run, joined the way the checks need them.

    Copies: (n,) arrays in the order of SEND rows. Offers: (m,) arrays ordered by (copy, place in the journal), so
    that a copy's hops stand one after the other. `copy` -1: of a message that was never sent.
    """

    def __init__(self, table: Table, header: PlainMapping, latencies: Mapping[tuple[int, int], int],
                 unordered: Collection[tuple[int, int]]):
        self.table, self.header, self.latencies = table, header, latencies
        self.unordered = np.array(sorted(u << 32 | v for u, v in unordered), np.int64)
        self.names: Sequence[str] = header["names"]
        self.vertex_names: Sequence[str] = header["network"]
        self.at = np.array(header["vertices"], np.int64)
        sent = table[rows.SEND]
        self.keys = copy_keys(sent["source"], sent["seq"])
        finder = KeyIndex(self.keys)
        self.copy_of = {kind: finder.positions(copy_keys(table[kind]["source"], table[kind]["seq"]))
                        for kind in (rows.SEND, *_OF_COPIES)}
        self._collect_offers()
        self._collect_outcomes()

    def _collect_offers(self) -> None:
        sent, hop = self.table[rows.SEND], self.table[rows.HOP]
        copy = np.concatenate([self.copy_of[rows.SEND], self.copy_of[rows.HOP]])
        index = np.concatenate([sent.index, hop.index])
        src, dst, wire, time = (np.concatenate([sent[f], hop[f]]) for f in ("vertex", "next", "wire", "time_ns"))
        key = np.concatenate([self.keys, copy_keys(hop["source"], hop["seq"])])
        order = np.lexsort((index, copy))
        order = order[src[order] >= 0]                          # messages of a node to itself take no link
        self.copy, self.offer_index, self.key = copy[order], index[order], key[order]
        self.src, self.dst, self.wire, self.time = src[order], dst[order], wire[order], time[order]
        m = len(order)
        same = self.copy[1:] == self.copy[:-1] if m else np.empty(0, bool)
        self.has_next = np.append(same, False)[:m] & (self.copy >= 0)       # a further hop of the copy follows
        self.has_previous = np.insert(same, 0, False)[:m] & (self.copy >= 0)
        self._find_given_back()

    def _find_given_back(self) -> None:
        """`given_back`: the next hop begins where this one did, or one before it in a row of links that share: a
        contact has ended. `rest`: the hops behind that, without the part that had come to the target."""
        m = len(self.copy)
        self.given_back, self.rest = np.zeros(m, bool), np.zeros(m, bool)
        elsewhere = np.append(False, self.src[1:] != self.dst[:-1])[:m]
        free = np.isin(self.src << 32 | self.dst, self.unordered)
        for i in np.flatnonzero(self.has_previous & elsewhere).tolist():
            j = i - 1
            while j >= 0 and self.copy[j] == self.copy[i] and free[j]:
                if self.src[j] == self.src[i]:
                    self.given_back[i - 1] = True
                    break
                j -= 1
        for i in np.flatnonzero(self.given_back).tolist():
            while i + 1 < m and self.copy[i + 1] == self.copy[i]:
                i += 1
                self.rest[i] = True

    def _collect_outcomes(self) -> None:
        """For every copy: the kind, time and row of its first outcome; -1 while in flight."""
        n = len(self.keys)
        self.outcome, self.outcome_time, self.outcome_row = (np.full(n, -1, np.int64) for _ in range(3))
        for kind in (rows.LOST, rows.REJECT, rows.DELIVER):     # a message rejected when read was delivered before
            copy = self.copy_of[kind]
            known = copy >= 0
            self.outcome[copy[known]] = kind
            self.outcome_time[copy[known]] = self.table[kind]["time_ns"][known]
            self.outcome_row[copy[known]] = np.flatnonzero(known)
        following = np.minimum(np.arange(len(self.copy)) + 1, max(len(self.copy) - 1, 0))
        final = np.where(self.copy >= 0, self.outcome_time[self.copy], -1) if n else np.full(len(self.copy), -1)
        self.exit = np.where(self.has_next, self.time[following], final) if len(self.copy) else final
        #           when the copy left this link, delivered or lost; -1: it has not

    def name(self, key: int) -> str:
        return f"message {int(key) >> 40}:{int(key) & (1 << 40) - 1}"

    def link(self, offer: int) -> str:
        return f"{self._vertex(int(self.src[offer]))}->{self._vertex(int(self.dst[offer]))}"

    def _vertex(self, vertex: int) -> str:
        return self.vertex_names[vertex] if 0 <= vertex < len(self.vertex_names) else f"vertex {vertex}"

    def node(self, node: int) -> str:
        return self.names[node] if 0 <= node < len(self.names) else f"node {node}"


def _result(name: str, cases: Sequence[str], count: int, looked_at: str) -> Invariant:
    return Invariant(name, not count, cases[0] if count else looked_at, count)


def _first(bad: np.ndarray) -> int:
    return int(np.flatnonzero(bad)[0])


# --- messages -------------------------------------------------------------------------------------------------------

def _one_fate(run: _Run) -> Invariant:
    """Every copy is sent once and delivered, lost, or in flight: at most one outcome, and none without a copy."""
    cases: list[str] = []
    count = 0

    def note(bad: np.ndarray, text: str, keys: np.ndarray) -> None:
        nonlocal count
        if bad.any():
            count += int(bad.sum())
            cases.append(f"{run.name(keys[_first(bad)])} {text}")

    n = len(run.keys)
    note(_repeated(run.keys), "is sent twice", run.keys)
    for kind in _OF_COPIES:
        part = run.table[kind]
        keys = copy_keys(part["source"], part["seq"])
        note(run.copy_of[kind] < 0, f"has a {rows.NAMES[kind][0]} row but was never sent", keys)
    inbox = np.zeros(n, bool)
    delivered, rejected = run.copy_of[rows.DELIVER], run.copy_of[rows.REJECT]
    inbox[delivered[(delivered >= 0) & (run.table[rows.DELIVER]["fate"] == rows.INBOX)]] = True
    rejected = rejected[rejected >= 0]
    ends = np.concatenate([delivered, run.copy_of[rows.LOST], rejected[~inbox[rejected]]])
    note(np.bincount(ends[ends >= 0], minlength=n) > 1, "has more than one outcome", run.keys)
    gone = np.concatenate([run.copy_of[rows.LATE], run.copy_of[rows.UNREAD], rejected[inbox[rejected]]])
    gone = gone[gone >= 0]
    note(np.bincount(gone, minlength=n) > 1, "is discarded twice", run.keys)
    note(~inbox[gone], "is discarded but never came to an inbox", run.keys[gone])
    arrived, lost, refused = (int((run.outcome == kind).sum()) for kind in (rows.DELIVER, rows.LOST, rows.REJECT))
    return _result("every message has one fate", cases, count,
                   f"{n} sent = {arrived} delivered, late or to ended + {lost} lost"
                   + (f" + {refused} rejected" if refused else "") + f" + {n - arrived - lost - refused} in flight")


def _repeated(keys: np.ndarray) -> np.ndarray:
    """(n,) bool: whether the number stands at an earlier place too."""
    order = np.argsort(keys, kind="stable")
    again = np.zeros(len(keys), bool)
    again[order[1:]] = keys[order[1:]] == keys[order[:-1]]
    return again


def _come(outcome: np.ndarray) -> np.ndarray:
    """(n,) bool: whether the copy came to its target, be it to be rejected there."""
    return (outcome == rows.DELIVER) | (outcome == rows.REJECT)


def _unbroken_routes(run: _Run) -> Invariant:
    """A copy's first hop begins at its source, each further one where the last ended, and it arrives at its target.

    Links that keep no order may give a copy back: then the next hop begins where one of those did.
    """
    sent = run.table[rows.SEND]
    before = np.maximum(np.arange(len(run.copy)) - 1, 0)
    start = (np.where(run.has_previous, run.dst[before], run.at[sent["source"][run.copy]])
             if len(run.copy) and len(run.keys) else run.src)
    known = run.copy >= 0
    wrong_start = known & (run.src != start) & ~np.insert(run.given_back, 0, False)[:-1]
    last = known & ~run.has_next
    kind = np.where(known, run.outcome[run.copy], -1) if len(run.keys) else np.full(len(run.copy), -1)
    arrived = last & _come(kind)
    wrong_end = np.zeros(len(run.copy), bool)
    wrong_end[arrived] = run.dst[arrived] != run.at[sent["target"][run.copy[arrived]]]
    lost = np.flatnonzero(last & (kind == rows.LOST))
    row = run.outcome_row[run.copy[lost]]
    elsewhere = np.zeros(len(run.copy), bool)
    losses = run.table[rows.LOST]
    elsewhere[lost] = (losses["vertex"][row] != run.src[lost]) | (losses["next"][row] != run.dst[lost])
    cases = [f"{run.name(run.key[i])} {text} {run.link(i)}" for bad, text in (
        (wrong_start, "did not come to where it takes"), (wrong_end, "is delivered, but not at the end of"),
        (elsewhere, "is lost on another link than")) if bad.any() for i in [_first(bad)]]
    return _result("routes are unbroken", cases, int((wrong_start | wrong_end | elsewhere).sum()),
                   f"{len(run.copy)} hops of {len(run.keys)} messages")


def _bytes_conserved(run: _Run) -> Invariant:
    """Per link and in total: bytes offered = bytes passed + lost + in flight; no hop carries less than the frames.

    The left side is summed over offers, the right side over what became of copies, so that a hop or an outcome that
    does not fit the other makes a difference.
    """
    sent, losses = run.table[rows.SEND], run.table[rows.LOST]
    known = run.copy >= 0
    size = np.where(known, sent["size"][run.copy], 0) if len(run.keys) else np.zeros(len(run.copy), np.int64)
    thin = known & (run.wire < np.where(run.rest, 1, size + ENVELOPE_BYTES))
    unheard = run.outcome == rows.LOST              # or in flight: nobody hears a node that is away
    selfish = (sent["vertex"] < 0) & ((sent["wire"] != 0) | (
        (sent["source"] != sent["target"]) & ~unheard & (run.outcome >= 0)))
    pairs = run.src << 32 | run.dst
    links, place = np.unique(pairs, return_inverse=True)
    offered, left, flying = (np.zeros(len(links), np.int64) for _ in range(3))
    np.add.at(offered, place, run.wire)
    last = known & ~run.has_next
    kind = np.where(known, run.outcome[run.copy], -1) if len(run.keys) else np.full(len(run.copy), -1)
    passed = run.has_next | (last & _come(kind))
    np.add.at(left, place[passed], run.wire[passed])
    np.add.at(flying, place[last & (kind < 0)], run.wire[last & (kind < 0)])
    # lost bytes are looked up from the LOST row's own link
    finder = KeyIndex(run.copy * len(links) + place)
    lost_copy = run.copy_of[rows.LOST]
    lost_link = KeyIndex(links).positions(losses["vertex"] << 32 | losses["next"])
    key = np.where((lost_copy >= 0) & (lost_link >= 0), lost_copy * len(links) + lost_link, -1 << 62)
    offer = finder.positions(key)
    found = offer[offer >= 0]
    lost = np.zeros(len(links), np.int64)
    np.add.at(lost, place[found], run.wire[found])
    unequal = offered != left + lost + flying
    cases = [f"{run.name(run.key[i])} took {int(run.wire[i])} B over {run.link(i)}, its frames and envelope have "
             f"{int(size[i]) + ENVELOPE_BYTES} B" for i in ([_first(thin)] if thin.any() else [])]
    cases += [f"{run.name(run.keys[i])} has no link but crosses one" for i in
              ([_first(selfish)] if selfish.any() else [])]
    for i in [_first(unequal)] if unequal.any() else []:
        cases.append(f"{run.link(_first(place == i))}: {int(offered[i])} B offered, {int(left[i])} B passed + "
                     f"{int(lost[i])} B lost + {int(flying[i])} B in flight")
    overdrawn = _declared_beyond(run)
    cases += overdrawn
    return _result("bytes are conserved on every link", cases,
                   int(thin.sum() + selfish.sum() + unequal.sum()) + len(overdrawn),
                   f"{int(offered.sum())} B offered to {len(links)} links = {int(left.sum())} passed + "
                   f"{int(lost.sum())} lost + {int(flying.sum())} in flight")


def _declared_beyond(run: _Run) -> list[str]:
    """Copies that declare more bytes than they have, or more than once."""
    part, sent = run.table[rows.DECLARED], run.table[rows.SEND]
    copy = run.copy_of[rows.DECLARED]
    known = copy >= 0                   # others are told of among the fates
    copy, size = copy[known], part["bytes"][known]
    wrong = (size <= 0) | (size > sent["size"][copy]) | _repeated(copy)
    return [f"{run.name(run.keys[c])} declares {s} of its {int(sent['size'][c])} B"
            for c, s in zip(copy[wrong].tolist(), size[wrong].tolist(), strict=True)]


def _latency_kept(run: _Run) -> Invariant:
    """Nothing leaves a link earlier than its least latency after it was offered, nor arrives before it was sent."""
    least = _least_latencies(run)
    left = run.exit >= 0
    links, place = np.unique(run.src << 32 | run.dst, return_inverse=True)
    ends = zip((links >> 32).tolist(), (links & 0xFFFFFFFF).tolist(), strict=True)
    needed = np.array([least.get(pair, 0) for pair in ends], np.int64)
    need = needed[place] if len(links) else np.zeros(len(run.copy), np.int64)
    early = left & (run.exit < run.time + need) & ~run.given_back
    cases = [f"{run.name(run.key[i])} left {run.link(i)} {int(run.exit[i] - run.time[i])} ns after it was offered, "
             f"the latency is {int(need[i])} ns" for i in ([_first(early)] if early.any() else [])]
    sent = run.table[rows.SEND]["time_ns"]
    backwards = (run.outcome_time >= 0) & (run.outcome_time < sent)
    cases += [f"{run.name(run.keys[i])} has its outcome before it was sent"
              for i in ([_first(backwards)] if backwards.any() else [])]
    return _result("nothing is faster than its links", cases, int(early.sum() + backwards.sum()),
                   f"{int(left.sum())} hops that ended")


def _least_latencies(run: _Run) -> dict[tuple[int, int], int]:
    """The latencies given; a link whose latency a fault changes is held to none, since it is not said when from."""
    least = dict(run.latencies)
    changes = run.table[rows.LINK]
    for u, v, change in zip(changes["vertex"].tolist(), changes["next"].tolist(), changes["changes"], strict=True):
        if change.get("latency_ns") is not None:
            least[u, v] = 0
    return least


def _link_order(run: _Run) -> Invariant:
    """First in, first out: a link's copies leave it in the order offered. In flight counts as leaving last."""
    order = np.lexsort((run.offer_index, run.dst, run.src))
    src, dst, time = run.src[order], run.dst[order], run.time[order]
    out = np.where(run.exit >= 0, run.exit, _NEVER)[order]
    same = (src[1:] == src[:-1]) & (dst[1:] == dst[:-1]) & ~np.isin(src << 32 | dst, run.unordered)[1:]
    overtaken = same & (out[1:] < out[:-1])
    unordered = same & (time[1:] < time[:-1])
    cases = [f"{run.name(run.key[order[i + 1]])} {text} {run.name(run.key[order[i]])} on {run.link(int(order[i]))}"
             for bad, text in ((overtaken, "overtook"), (unordered, "was offered earlier than, but after,"))
             if bad.any() for i in [_first(bad)]]
    return _result("links keep the order", cases, int((overtaken | unordered).sum()), f"{len(order)} offers")


# --- nodes ----------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class _Life:
    """Rows of some kinds, (n,) each, by node and then in the order of the journal."""

    node: np.ndarray
    kind: np.ndarray
    time: np.ndarray
    index: np.ndarray

    def describe(self, run: _Run, i: int) -> str:
        return f"{run.node(int(self.node[i]))}: {rows.NAMES[int(self.kind[i])][0]} at {int(self.time[i])} ns"


def _life(run: _Run, kinds: Sequence[int]) -> _Life:
    parts = [run.table[kind] for kind in kinds]         # one field after the other: these are most of a run's rows
    node = np.concatenate([part["source" if part.kind == rows.SEND else "node"].astype(np.int32) for part in parts])
    order = np.lexsort((np.concatenate([part.index for part in parts]), node))
    node = node[order]
    kind = np.repeat(np.array(kinds, np.int8), [len(part) for part in parts])[order]
    time = np.concatenate([part["time_ns"] for part in parts])[order]
    return _Life(node, kind, time, np.concatenate([part.index for part in parts])[order])


def _latest(life: _Life, marked: np.ndarray) -> np.ndarray:
    """(n,) place of the last marked row of the same node at or before each row; -1: none."""
    place = np.maximum.accumulate(np.where(marked, np.arange(len(marked)), -1)) if len(marked) else np.empty(0, int)
    return np.where((place >= 0) & (life.node[place] == life.node), place, -1) if len(marked) else place


def _activations_in_order(run: _Run) -> Invariant:
    """A node's activations, crashes and returns come in non-decreasing time."""
    life = _life(run, (*_ACTIVATIONS, rows.CRASH, rows.RETURN))
    back = (life.node[1:] == life.node[:-1]) & (life.time[1:] < life.time[:-1])
    cases = [f"{life.describe(run, i + 1)}, after {int(life.time[i])} ns" for i in
             ([_first(back)] if back.any() else [])]
    return _result("no node goes back in time", cases, int(back.sum()), f"{len(life.node)} activations")


def _actions_at_activations(run: _Run) -> Invariant:
    """A node acts at the time of its last activation: before it would be acausal, after it nothing has happened."""
    life = _life(run, (*_ACTIVATIONS, *_ACTIONS))
    active = np.isin(life.kind, _ACTIVATIONS)
    last = _latest(life, active)
    wrong = ~active & ((last < 0) | (life.time != life.time[last]))
    cases = []
    if wrong.any():
        i = _first(wrong)
        cases.append(f"{life.describe(run, i)}, " + ("before its start" if last[i] < 0 else
                                                     f"its activation was at {int(life.time[last[i]])} ns"))
    return _result("nodes act at their activations", cases, int(wrong.sum()), f"{int((~active).sum())} actions")


def _silence(run: _Run) -> Invariant:
    """From its crash to its return, and after its end, a node does nothing."""
    life = _life(run, (*_ACTIVATIONS, *_ACTIONS, rows.CRASH, rows.RETURN))
    last = _latest(life, np.isin(life.kind, (rows.CRASH, rows.RETURN, rows.FINISH)))
    down = (last >= 0) & np.isin(life.kind[last], (rows.CRASH, rows.FINISH)) & (last != np.arange(len(last)))
    down &= life.kind != rows.RETURN
    cases = [f"{life.describe(run, i)}, after its {rows.NAMES[int(life.kind[last[i]])][0]}" for i in
             ([_first(down)] if down.any() else [])]
    return _result("the dead are silent", cases, int(down.sum()), f"{len(life.node)} rows of nodes")


def _deliveries_to_the_living(run: _Run) -> Invariant:
    """The rows of deliveries to a node that has crashed or ended say so, and no other rows do."""
    ends = _life(run, (rows.CRASH, rows.RETURN, rows.FINISH))
    arrived = run.table[rows.DELIVER]
    copy = run.copy_of[rows.DELIVER]
    known = copy >= 0
    target = np.full(len(copy), -1, np.int64)
    target[known] = run.table[rows.SEND]["target"][copy[known]]
    # the last of the target's rows before the delivery, by (node, place in the journal) as one number
    span = run.table.count + 1
    at = np.searchsorted(ends.node.astype(np.int64) * span + ends.index, target * span + arrived.index) - 1
    dead = np.zeros(len(copy), bool)
    if len(ends.node):
        dead = (at >= 0) & (ends.node[at] == target) & (ends.kind[at] != rows.RETURN)
    wrong = known & (dead != (arrived["fate"] == rows.TO_ENDED))
    cases = []
    if wrong.any():
        i = _first(wrong)
        cases.append(f"{run.name(run.keys[copy[i]])} to {run.node(int(target[i]))} is delivered "
                     + ("to the dead" if dead[i] else "as if its receiver had ended"))
    return _result("only the living receive", cases, int(wrong.sum()), f"{len(copy)} deliveries")


def _dropped_out(run: _Run) -> Invariant:
    """Of a node that has dropped out of a round no link carries anything more of that round, and none reaches it."""
    dropped, sent, arrived = run.table[rows.DROP], run.table[rows.SEND], run.table[rows.DELIVER]
    name = "who drops out of a round is out of it"
    if not len(dropped):
        return _result(name, [], 0, "nobody dropped out")
    copy = run.copy_of[rows.DELIVER]
    copy, delivered = copy[copy >= 0], arrived.index[copy >= 0]
    finder = KeyIndex(dropped["node"] << 32 | dropped["round"])

    def after(node: np.ndarray, round_: np.ndarray, index: np.ndarray) -> np.ndarray:
        place = finder.positions(node << 32 | round_)
        return (place >= 0) & (index > dropped.index[place])

    heard = after(sent["source"], sent["round"], sent.index) & (sent["vertex"] >= 0)
    reached = (after(sent["target"][copy], sent["round"][copy], delivered)
               & (sent["source"][copy] != sent["target"][copy]))
    cases = [f"{run.name(run.keys[key])} {text}" for bad, keys, text in (
        (heard, np.arange(len(run.keys)), "is sent by a node that has dropped out of its round"),
        (reached, copy, "reaches a node that has dropped out of its round"))
             if bad.any() for key in [keys[_first(bad)]]]
    return _result(name, cases, int(heard.sum() + reached.sum()), f"{len(dropped)} dropped out")


def _rejected_once(run: _Run) -> Invariant:
    """A copy is rejected for a reason: at its arrival, or by its receiver, when a wait has just handed it over."""
    part, sent, read = run.table[rows.REJECT], run.table[rows.SEND], run.table[rows.RESUME]
    copy = run.copy_of[rows.REJECT]
    known = copy >= 0                   # others are told of among the fates
    target = np.full(len(copy), -1, np.int64)
    target[known] = sent["target"][copy[known]]
    later = known & (run.outcome[copy] == rows.DELIVER) if len(run.keys) else known
    moments = set(zip(read["node"].tolist(), read["time_ns"].tolist(), strict=True)) if later.any() else set()
    asleep = np.array([bool(at) and (node, time) not in moments for at, node, time in
                       zip(later.tolist(), target.tolist(), part["time_ns"].tolist(), strict=True)], bool)
    mute = np.array([not part.texts["reason"][code] for code in part["reason"].tolist()], bool)
    wrong = asleep | mute
    cases = [f"{run.name(run.keys[copy[i]])} is rejected by {run.node(int(target[i]))} "
             + ("without a reason" if mute[i] else "while it does nothing")
             for i in ([_first(wrong)] if wrong.any() else [])]
    return _result("rejections have a reason", cases, int(wrong.sum()), f"{len(copy)} rejections")


def _rounds_grow(run: _Run) -> Invariant:
    """A node enters rounds in increasing order, and leaves the one that it is in."""
    life = _life(run, (rows.ENTER, rows.LEAVE))
    number = np.zeros(run.table.count, np.int64)
    for kind in (rows.ENTER, rows.LEAVE):
        number[run.table[kind].index] = run.table[kind]["round"]
    number = number[life.index]
    entering = (life.kind == rows.ENTER) & (number > 0)
    last = _latest(life, entering)
    before = np.insert(last[:-1], 0, -1) if len(last) else last
    before = np.where((before >= 0) & (life.node[before] == life.node), before, -1) if len(last) else before
    shrinks = entering & (before >= 0) & (number <= number[before])
    astray = (life.kind == rows.LEAVE) & ((last < 0) | (number != number[last]))
    wrong = shrinks | astray
    cases = []
    if wrong.any():
        i = _first(wrong)
        cases.append(f"{life.describe(run, i)}, round {int(number[i])}, the round before was "
                     f"{int(number[before[i]]) if before[i] >= 0 else 0}")
    return _result("rounds grow", cases, int(wrong.sum()), f"{int(entering.sum())} rounds entered")


def _lanes_take_turns(run: _Run) -> Invariant:
    """A lane of a node has one computation at a time, whichever activities asked for them."""
    name = "lanes take turns"
    if not len(run.table[rows.BESIDE]):
        return _result(name, [], 0, "no activities")
    c = computations_of(run.table)
    order = np.lexsort((c.start_ns, c.lane, c.node))
    node, lane, start = c.node[order], c.lane[order], c.start_ns[order]
    end = np.where(c.end_ns < 0, _NEVER, c.end_ns)[order]
    wrong = (node[1:] == node[:-1]) & (lane[1:] == lane[:-1]) & (start[1:] < end[:-1])
    cases = [f"{run.node(int(node[i + 1]))} begins {c.labels[c.label[order[i + 1]]]} at {int(start[i + 1])} ns, while "
             f"{c.labels[c.label[order[i]]]} is on its lane" for i in ([_first(wrong)] if wrong.any() else [])]
    return _result(name, cases, int(wrong.sum()), f"{len(order)} computations")
