"""The state machine of agreement under every schedule that a small adversary can think of."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import replace
from hashlib import blake2b, sha256

import numpy as np
import pytest

from emul.primitives.bft import pbft
from emul.primitives.bft.faults import FAULTS, ServerBehaviour
from emul.primitives.bft.pbft import (
    Ask,
    Bodies,
    Body,
    Certificate,
    Commit,
    Decide,
    Decision,
    Entry,
    Execute,
    Fetch,
    Prepare,
    PrePrepare,
    Proposal,
    Replica,
    SendSigned,
    ServerGroup,
    ViewChange,
    VoteJournal,
    claims,
    proposal_digest,
    statement,
    upload_statement,
)

MS = 10**6
T = 100 * MS


def signature(client: bool, signer: int, told: bytes) -> bytes:
    """As good as any here: the adversary of these tests signs for nobody but its own servers and clients."""
    return blake2b(told, digest_size=16, key=bytes([client, signer])).digest()


def entry(t: int, client: int, body: bytes) -> Entry:
    found = sha256(body).digest()
    return Entry(client, found, signature(True, client, upload_statement(t, client, found)))


def result_of(bodies: list[bytes]) -> bytes:
    return b"".join(sha256(body).digest()[:4] for body in bodies)


class Cluster:
    """Servers with their faults, on a network that delays, loses and repeats what the test says."""

    def __init__(self, n: int, f: int, t: int = 0, faults: dict[int, str] | None = None, clients: int = 4,
                 rng: np.random.Generator | None = None, latency: tuple[float, float] = (2.5, 7.5), timeout: int = T,
                 loss: float = 0.0, until: int = 0, repeat: float = 0.0, held=None,
                 commits: float = 0.0):
        self.group, self.t = ServerGroup(n, f, timeout), t
        self.rng = rng or np.random.default_rng(1)
        self.latency, self.loss, self.until, self.repeat = latency, loss, until, repeat
        self.commits = commits                              # loss of Commits, for as long as there are losses
        self.now, self.number, self.queue = 0, 0, []
        self.faults = faults or {}
        self.sent: Counter[str] = Counter()
        self.timers: dict[int, int] = {}
        self.decided: dict[int, tuple[int, int, Proposal]] = {}       # server -> (time, view, proposal)
        self.bodies: dict[int, dict[tuple[int, bytes], bytes]] = {s: {} for s in range(n)}
        self.fault = {s: FAULTS[name]() if (name := self.faults.get(s)) in FAULTS else ServerBehaviour()
                      for s in range(n)}
        self.journals = {s: VoteJournal(t) for s in range(n)}
        self.replicas = {s: self.fault[s].machine(self.group, s, self.journals[s]) for s in range(n)}
        self.alive = {s for s in range(n) if self.faults.get(s) != "crashed"}
        self.honest = sorted(s for s in self.alive if s not in self.faults)
        for s in sorted(self.alive):
            inputs = [b"%d of %d" % (c, t) for c in range(clients)] if held is None else None
            mine = dict(enumerate(inputs)) if held is None else held[s]
            for c, body in mine.items():
                self.bodies[s][c, sha256(body).digest()] = body
            entries = self.fault[s].inputs([entry(t, c, body) for c, body in sorted(mine.items())])
            start = int(self.rng.uniform(0, 2) * MS)
            self.at(start, "begin", s, entries)

    def at(self, time, what, server, *args):
        self.number += 1
        heapq.heappush(self.queue, (time, self.number, what, server, args))

    def run(self, until: int) -> Cluster:
        while self.queue and self.queue[0][0] <= until:
            self.now, _, what, server, args = heapq.heappop(self.queue)
            if server not in self.alive:
                continue
            replica = self.replicas[server]
            if what == "begin":
                self.apply(server, replica.begin(self.now, args[0]))
                for sender, message in self.bodies[server].pop("early", []):
                    self.take(server, sender, message)
            elif what == "timer":
                if replica.deadline is not None and replica.deadline <= self.now:
                    self.apply(server, replica.expire(self.now))
            elif not replica.begun:
                self.bodies[server].setdefault("early", []).append(args)
            else:
                self.take(server, *args)
            if replica.deadline is not None and self.timers.get(server) != replica.deadline:
                self.timers[server] = replica.deadline
                self.at(max(replica.deadline, self.now), "timer", server)
        return self

    def take(self, server, sender, message):
        told = list(claims(sender, message))
        good = [signature(c.client, c.signer, c.statement) == c.signature for c in told]
        if not all(ok for c, ok in zip(told, good, strict=True) if not c.client):
            self.replicas[server].rejected["bad signature"] += 1
            return
        if isinstance(message, Fetch):
            self.serve(server, sender, message)
            return
        if isinstance(message, Bodies):
            for body in message.bodies:
                found = sha256(body.body).digest()
                self.bodies[server][body.client, found] = body.body
                self.apply(server, self.replicas[server].provide(
                    self.now, Entry(body.client, found, body.signature), not body.body.startswith(b"bad")))
            return
        self.apply(server, self.replicas[server].receive(self.now, sender, message, forged=not all(good)))

    def serve(self, server, sender, message):
        bodies = tuple(Body(c, self.bodies[server][c, d], entry(self.t, c, self.bodies[server][c, d]).signature)
                       for c, d in message.wanted if (c, d) in self.bodies[server])
        if bodies:
            self.send(server, SendSigned((sender,), Bodies(self.t, bodies)))

    def apply(self, server, effects):
        pending = list(effects)
        while pending:
            effect = pending.pop(0)
            replica = self.replicas[server]
            if isinstance(effect, Decide):
                assert server not in self.decided
                self.decided[server] = (self.now, effect.view, effect.proposal)
            elif isinstance(effect, Execute):
                result = result_of([self.bodies[server][e.client, e.digest] for e in effect.entries])
                pending += replica.evaluated(self.now, effect.entries, self.fault[server].result(replica, result))
            else:
                for part in self.fault[server].sent(server, effect):
                    pending += self.send(server, part)

    def send(self, server, send):
        signed = replace(send.message, signature=signature(False, server, statement(server, send.message)))
        follow = []
        for target in send.to:
            if target == server:
                follow += self.replicas[server].receive(self.now, server, signed)
                continue
            self.sent[type(signed).__name__] += 1
            for _ in range(1 + (self.rng.random() < self.repeat)):
                lost = max(self.loss, self.commits if isinstance(signed, Commit) else 0.0)
                if self.now < self.until and self.rng.random() < lost:
                    continue
                slow = 5.0 if self.faults.get(server) == "slow" else 1.0
                delay = int(self.rng.uniform(*self.latency) * slow * MS)
                self.at(self.now + delay, "message", target, server, signed)
        return follow

    @property
    def results(self) -> set[bytes]:
        return {self.decided[s][2].result for s in self.honest if s in self.decided}


def truth(clients: int = 4, t: int = 0, without: tuple[int, ...] = ()) -> bytes:
    return result_of([b"%d of %d" % (c, t) for c in range(clients) if c not in without])


# --- acceptance: section 8 of the sheet -----------------------------------------------------------------------------

@pytest.mark.parametrize(("n", "f", "messages"), [(4, 1, 27), (7, 2, 90), (10, 3, 189)])
def test_without_faults_n_minus_1_times_2n_plus_1_messages_decide_in_view_0(n, f, messages):
    for t in range(n):
        cluster = Cluster(n, f, t).run(10**12)
        assert sum(cluster.sent.values()) == messages == (n - 1) * (2 * n + 1)
        assert cluster.results == {truth(t=t)}
        assert {view for _, view, _ in cluster.decided.values()} == {0}
        assert len(cluster.decided) == n
        assert max(time for time, _, _ in cluster.decided.values()) < 30 * MS


@pytest.mark.parametrize(("n", "f", "faults", "view", "within"), [
    (4, 1, {1: "crashed"}, 0, 30), (7, 2, {2: "crashed"}, 0, 30),           # a follower
    (4, 1, {0: "crashed"}, 1, 150), (4, 1, {0: "silent"}, 1, 150),          # the leader
    (4, 1, {0: "equivocating"}, 1, 140), (7, 2, {0: "equivocating"}, 1, 140),
    (4, 1, {0: "tampering"}, 1, 50), (7, 2, {0: "tampering"}, 1, 50),
    (4, 1, {0: "dropping"}, 1, 50), (4, 1, {0: "slow"}, 0, 100),
    (4, 1, {2: "wrong_votes"}, 0, 30), (4, 1, {0: "wrong_votes"}, 0, 140), (4, 1, {0: "colluding"}, 1, 50),
    (7, 2, {0: "crashed", 1: "crashed"}, 2, 360), (7, 2, {0: "tampering", 1: "silent"}, 2, 360),
    (4, 1, {0: "colluding", 1: "colluding"}, None, 10**4), (7, 2, {0: "colluding", 1: "colluding", 2: "colluding"},
                                                           None, 10**4)])
def test_each_malfunction_ends_as_the_sheet_says(n, f, faults, view, within):
    for seed in range(5):
        cluster = Cluster(n, f, 0, faults, rng=np.random.default_rng(seed)).run(10**13)
        assert sorted(set(cluster.decided) & set(cluster.honest)) == cluster.honest
        assert cluster.results == {truth()}
        assert max(cluster.decided[s][0] for s in cluster.honest) < within * MS
        if view is not None:
            assert max(cluster.decided[s][1] for s in cluster.honest) <= view


def test_f_plus_1_crashed_servers_leave_the_others_undecided_in_rising_views():
    cluster = Cluster(4, 1, 0, {0: "crashed", 2: "crashed"}).run(20 * T)
    assert not cluster.decided
    assert min(cluster.replicas[s].view for s in cluster.honest) >= 4


@pytest.mark.parametrize(("n", "f"), [(4, 1), (7, 2)])
def test_up_to_2f_plus_1_colluding_servers_get_no_honest_one_to_decide_a_tampered_result(n, f):
    for liars in range(1, 2 * f + 2):
        cluster = Cluster(n, f, 0, dict.fromkeys(range(liars), "colluding")).run(100 * T)
        assert cluster.results <= {truth()}
    assert not cluster.results                              # 2f + 1 decide among themselves, and nobody else does


# --- clients that cheat, inputs that are missing --------------------------------------------------------------------

def test_a_client_that_signs_twice_is_left_out_and_both_signatures_prove_it():
    held = {s: {0: b"0 of 0", 1: b"1 of 0", 2: b"two" if s % 2 else b"2 of 0"} for s in range(4)}
    cluster = Cluster(4, 1, held=held).run(10**13)
    assert len(cluster.decided) == 4
    assert cluster.results == {truth(2)}
    for _, _, proposal in cluster.decided.values():
        assert [e.client for e in proposal.twice] == [2, 2]
    assert any(r.rejected["upload signed twice"] for r in cluster.replicas.values())


def test_inputs_that_the_leader_has_not_got_travel_in_view_changes_and_are_fetched():
    held = {s: {c: b"%d of 0" % c for c in range(4) if c != s} for s in range(4)}      # each misses another one
    cluster = Cluster(4, 1, held=held).run(10**13)
    assert cluster.results == {truth()}
    assert cluster.sent["Fetch"]
    assert {view for _, view, _ in cluster.decided.values()} == {1}


def test_a_server_without_any_input_fetches_all_of_them_from_the_leader():
    everything = {c: b"%d of 0" % c for c in range(4)}
    cluster = Cluster(4, 1, held={0: everything, 1: everything, 2: everything, 3: {}}).run(10**13)
    assert cluster.results == {truth()}
    assert {view for _, view, _ in cluster.decided.values()} == {0}
    assert cluster.sent["Fetch"] == 1


@pytest.mark.parametrize("seed", range(20))
def test_what_one_server_has_decided_no_later_view_can_change(seed):
    """Server 0 alone hears Commits; server 1, the next leader, holds an input more, and would propose more."""
    held = {s: {c: b"%d of 0" % c for c in range(4 if s == 1 else 3)} for s in range(4)}
    cluster = Cluster(4, 1, held=held, rng=np.random.default_rng(seed))
    deliver = cluster.take

    def take(server, sender, message):
        kept = isinstance(message, Commit) and message.view == 0 and server > 0
        if not kept and not (isinstance(message, Decision) and cluster.now <= 10 * T):
            deliver(server, sender, message)

    cluster.take = take
    cluster.run(10**13)
    assert cluster.decided[0][1] == 0
    assert len(cluster.decided) == 4
    assert cluster.results == {truth(3)}


def lone(me: int = 1, journal: VoteJournal | None = None) -> Replica:
    replica = Replica(ServerGroup(4, 1, T), me, journal or VoteJournal(0))
    replica.begin(0, [entry(0, c, b"%d of 0" % c) for c in range(4)])
    return replica


def proposal(clients=range(4), twice=()) -> Proposal:
    return Proposal(tuple(entry(0, c, b"%d of 0" % c) for c in clients),
                    result_of([b"%d of 0" % c for c in clients]), tuple(twice))


@pytest.mark.parametrize(("sender", "message", "forged", "reason"), [
    (0, PrePrepare(0, 0, proposal()), True, "forged upload"),
    (2, PrePrepare(0, 0, proposal()), False, "not the leader"),
    (0, PrePrepare(1, 0, proposal()), False, "wrong instance"),
    (0, PrePrepare(0, 0, proposal([0, 1, 1, 2])), False, "a client twice"),
    (0, PrePrepare(0, 0, proposal([0, 1, 2])), False, "inputs left out"),
    (0, PrePrepare(0, 0, proposal([0, 1, 2], [entry(0, 3, b"3 of 0")])), False,
     "no proof that an upload was signed twice"),
    (1, pbft.NewView(0, 1, (), proposal()), False, "no proof of the new view"),
    (2, Decision(0, Certificate(0, proposal(), ((0, b""), (1, b"")))), False, "no proof of the decision"),
    (2, ViewChange(0, 1, Certificate(0, proposal(), ((0, b""), (0, b""), (1, b""))), ()), False,
     "no proof of what was prepared"),
])
def test_what_the_protocol_forbids_is_rejected_with_its_reason(sender, message, forged, reason):
    replica = lone(3)
    replica.receive(MS, sender, message, forged)
    assert dict(replica.rejected) == {reason: 1}
    assert not replica.journal.prepares


def test_a_leader_cannot_pass_over_what_was_prepared():
    prepared = Certificate(0, proposal([0, 1, 2]), ((0, b""), (1, b""), (2, b"")))
    changes = ((0, ViewChange(0, 1, prepared, ())), (1, ViewChange(0, 1, None, ())), (2, ViewChange(0, 1, None, ())))
    for chosen, reasons in ((proposal(), {"no proof of the new view": 1}), (proposal([0, 1, 2]), {})):
        replica = lone(3)
        effects = replica.receive(MS, 1, pbft.NewView(0, 1, changes, chosen))
        assert dict(replica.rejected) == reasons
        assert effects == ([] if reasons else [Execute(chosen.entries)])
    replica.receive(MS, 1, pbft.NewView(0, 2, changes, proposal([0, 1, 2])))
    assert replica.rejected == {"not the leader": 1}


def test_a_forged_upload_in_a_new_view_frames_no_client():
    fake = Entry(2, sha256(b"never sent").digest(), b"forged")
    changes = ((0, ViewChange(0, 1, None, (fake,))), (1, ViewChange(0, 1, None, ())), (2, ViewChange(0, 1, None, ())))
    replica = lone(3)
    replica.receive(MS, 1, pbft.NewView(0, 1, changes, proposal()), forged=True)
    assert replica.rejected == {"forged upload": 1}
    assert replica.view == 2
    clean = tuple((s, ViewChange(0, 2, None, ())) for s in (0, 1, 3))
    replica.receive(2 * MS, 2, pbft.NewView(0, 2, clean, proposal()))
    voted = replica.evaluated(2 * MS, proposal().entries, proposal().result)
    assert [type(e.message) for e in voted] == [Prepare]


def test_after_a_crash_a_server_does_not_vote_for_another_proposal_in_the_same_view():
    first, journal = proposal(), VoteJournal(0)
    replica = lone(1, journal)
    effects = replica.receive(MS, 0, PrePrepare(0, 0, first))
    assert effects == [Execute(first.entries)]
    effects = replica.evaluated(MS, first.entries, first.result)
    assert [e.message for e in effects] == [Prepare(0, 0, proposal_digest(0, first))]
    other = Proposal(first.entries, first.result, (entry(0, 7, b"a"), entry(0, 7, b"b")))       # as sound as the first
    for again, votes in ((other, []), (first, [Prepare(0, 0, proposal_digest(0, first))])):
        replica = lone(1, journal)                          # the same journal, nothing else
        replica.receive(2 * MS, 0, PrePrepare(0, 0, again))
        effects = replica.evaluated(2 * MS, first.entries, first.result)
        assert [e.message for e in effects] == votes


def test_a_leader_that_returns_proposes_what_it_had_proposed():
    journal = VoteJournal(0)
    entries = [entry(0, c, b"%d of 0" % c) for c in range(4)]
    replica = Replica(ServerGroup(4, 1, T), 0, journal)
    assert replica.begin(0, entries) == [Execute(tuple(entries))]
    sent, = replica.evaluated(0, tuple(entries), proposal().result)
    assert sent.message == PrePrepare(0, 0, proposal())
    back = Replica(ServerGroup(4, 1, T), 0, journal)
    assert back.begin(5 * MS, entries[:2])[0] == sent


def test_a_server_that_was_away_asks_for_the_decision_and_checks_it():
    cluster = Cluster(4, 1, 0, {3: "crashed"}).run(10**12)
    cluster.faults = {}
    cluster.alive.add(3)
    away = cluster.replicas[3]
    cluster.apply(3, away.begin(cluster.now, []))
    cluster.send(3, SendSigned((0, 1, 2), Ask(0)))
    cluster.run(10**13)
    assert cluster.decided[3][2].result == truth()
    assert cluster.sent["Decision"] == 3
    assert cluster.sent["Fetch"] >= 1                       # it had no input: F is its own


def test_a_decision_with_a_wrong_result_is_not_believed_whoever_signed_it():
    replica = lone(3)
    wrong = Proposal(proposal().entries, b"\x00" * 16)
    votes = tuple((s, signature(False, s, statement(s, Commit(0, 0, proposal_digest(0, wrong))))) for s in range(3))
    replica.receive(MS, 2, Decision(0, Certificate(0, wrong, votes)))
    assert replica.evaluated(MS, wrong.entries, proposal().result) == []
    assert replica.decision is None
    assert replica.rejected == {"wrong result": 1}


def test_what_is_signed_depends_on_sender_type_and_every_field():
    told = {statement(s, m) for s in (0, 1) for m in (
        Prepare(0, 0, b"d"), Commit(0, 0, b"d"), Prepare(1, 0, b"d"), Prepare(0, 1, b"d"), Prepare(0, 0, b"e"),
        Ask(0), Fetch(0, ((1, b"d"),)), ViewChange(0, 1, None, ()), PrePrepare(0, 0, proposal()))}
    assert len(told) == 18
    assert statement(0, Prepare(0, 0, b"d", b"signed")) == statement(0, Prepare(0, 0, b"d"))


# --- random schedules -----------------------------------------------------------------------------------------------

KINDS = ["crashed", "silent", "equivocating", "tampering", "dropping", "wrong_votes", "slow", "colluding"]


def schedule(seed: int, over: bool) -> Cluster:
    """Servers, faults, losses, delays, duplicates, cheating clients, by `seed`; over: more than f are faulty."""
    rng = np.random.default_rng((seed, over))
    f = 1 if rng.random() < 0.8 else 2
    n = 3 * f + 1 + int(rng.random() < 0.15)
    count = int(rng.integers(f + 1, 2 * f + 2)) if over else int(rng.integers(0, f + 1))
    faults = {int(s): str(rng.choice(KINDS)) for s in rng.permutation(n)[:count]}
    held = {s: {c: b"%d of 0" % c for c in range(3)} for s in range(n)}
    if not over and rng.random() < 0.5:                     # uploads lost on their way, or signed twice
        for s in range(n):
            for c in range(3):
                draw = rng.random()
                if draw < 0.15:
                    del held[s][c]
                elif draw < 0.2:
                    held[s][c] = b"another %d" % c
    slow = rng.random() < 0.3                               # timers far too short: needless view changes
    return Cluster(n, f, int(rng.integers(0, n)), faults, rng=rng, latency=(15, 45) if slow else (2.5, 7.5),
                   timeout=60 * MS if slow else T, loss=float(rng.choice([0, 0.1, 0.3])),
                   until=int(rng.integers(0, 500)) * MS, repeat=float(rng.choice([0, 0.2])), held=held,
                   commits=float(rng.choice([0, 0.6])))


def check(seed: int) -> None:
    cluster = schedule(seed, False)
    cluster.run(3 * 10**14)
    assert len(cluster.results) == 1, f"seed {seed}: {len(cluster.results)} decisions"
    undecided = set(cluster.honest) - set(cluster.decided)
    assert not undecided, f"seed {seed}: {undecided} never decide"
    allowed = {b"%d of 0" % c for c in range(3)} | {b"another %d" % c for c in range(3)}
    inputs = [sha256(b).digest() for b in allowed]
    for s in cluster.honest:
        chosen = cluster.decided[s][2]
        assert chosen.result == result_of([next(b for b in allowed if sha256(b).digest() == e.digest)
                                           for e in chosen.entries])
        assert all(e.digest in inputs for e in chosen.entries)


@pytest.mark.parametrize("part", [0, 1, 2, *(pytest.param(part, marks=pytest.mark.slow) for part in range(3, 10))])
def test_with_up_to_f_faulty_servers_all_honest_ones_decide_one_correct_result(part):
    for seed in range(160 * part, 160 * (part + 1)):
        check(seed)


@pytest.mark.parametrize("part", [0, 1, *(pytest.param(part, marks=pytest.mark.slow) for part in range(2, 5))])
def test_with_more_than_f_faulty_servers_there_are_never_two_results_nor_a_wrong_one(part):
    for seed in range(120 * part, 120 * (part + 1)):
        cluster = schedule(seed, True)
        cluster.run(30 * T)
        dropped = {truth(3, without=(0,))} if "dropping" in cluster.faults.values() else set()
        assert cluster.results <= {truth(3)} | dropped
        assert len(cluster.results) <= 1
