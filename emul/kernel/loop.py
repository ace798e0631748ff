"""The kernel's loop: one clock for many processes.

It takes steps off the calendar as long as they are *safe*, hands activations to the workers, and applies their answers
in the order of the activations. Two rules make a run the same for any number of workers:

    safe        an event of vertex j at t is taken only if no open activation can yet cause an earlier one there:
                time(i) + least latency out of i > t for every open activation i, and j itself has none open
    in order    answers are applied in the order in which their activations were opened, never in that in which they
                arrive; so what the kernel does next depends on virtual time alone

To run ahead optimistically and roll back is no way out, since nobody can afford to keep a torch model for each step. A
link without latency gives no lookahead, and nor does a computation whose cost is measured.

Nothing here knows a scheme, a process or a file. `state.py` holds what is known of the run; the modules beside it,
such as `messages.py`, `waits.py` and `faults.py`, say what becomes of the actions and entries that the loop meets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from operator import itemgetter
from typing import Any

from emul.base import rows
from emul.base.errors import Deadlock, EndOfTime, RoleFailed, RunError, other_beginning
from emul.kernel import precedents
from emul.kernel.activities import begin_activity, end_activity, look_at_activities
from emul.kernel.battery import computes
from emul.kernel.calendar import (
    ADVANCE,
    BACK,
    COMPUTED,
    DEADLINE,
    EMPTY,
    FAILURE,
    FAR,
    FATE,
    FLOW_IN,
    FLOW_ON,
    LAND,
    LOCAL,
    LOOK,
    NETWORK,
    OFFER,
    RETURN,
    SENT,
    STOP,
    Entry,
)
from emul.kernel.deadlock import deadlock_report, end_of_time_report
from emul.kernel.fates import departure_known_at, round_is_over, settle
from emul.kernel.faults import come_back, fail, plan_faults, return_, run_out
from emul.kernel.messages import arrive, enter_next, leave_link, offer_to, send, send_each, start_flow
from emul.kernel.parts import Copy, KNode, Patience, Pipe
from emul.kernel.rounds import finish, leave_round, next_round, plan_stop, report, stop_now, try_next_round
from emul.kernel.sending import await_sent, look_at_transmission
from emul.kernel.state import UNWRITTEN, Kernel
from emul.kernel.waits import abstain, close_round, reject, resume, wait
from emul.network import Tail
from emul.roles.events import (
    PARKED,
    Abstain,
    AwaitSent,
    BeginActivity,
    Compute,
    Computed,
    EndActivity,
    Finish,
    LeaveRound,
    NextRound,
    Reject,
    Reply,
    Report,
    Send,
    SendEach,
    Start,
    Wait,
    WaitEnd,
)

_LANDINGS = (LOCAL, LAND)
_time = itemgetter(1)               # of a row


def run_to_end(kernel: Kernel) -> None:
    """Run to the end. Raises RunError: a role failed, a deadlock, a worker died, a bug of emul."""
    plan_faults(kernel)
    if kernel.plan.stop.virtual_ns is not None:
        plan_stop(kernel, kernel.plan.stop.virtual_ns)
    try:
        _begin(kernel)
        _loop(kernel)
    except RunError:
        # As if it had ended at the end of time with nothing open, so that `_release` holds no row back: the journal of
        # a run that failed has all that is known (`test_the_journal_of_a_run_that_failed_can_be_read_up_to_there`).
        kernel.limit, kernel.deciding = FAR - 1, set()
        kernel.open.clear()
        _release(kernel)
        raise
    except BaseException:                       # an interrupt: what is settled by now
        _release(kernel)
        raise
    _release(kernel)


def _begin(kernel: Kernel) -> None:
    """Start all nodes.

    If the first node of a `stateless` role does nothing but ask for a round, the kernel takes that request for the
    other nodes of the role, too, and does not start them. In each worker it still starts the 1st, 2nd, 4th, 8th ... of
    them: if one of these asks for something else, the scheme is wrongly called `stateless`, and the run fails at once.
    """
    # With 60,000 registered clients, 30 of whom take part, and two workers, a run takes 1.74 and 1.80 s of CPU of all
    # processes so, and 2.24 and 1.99 if workers answer for each; a worker needs nothing of it until it enters a round.
    # The answer counts in its turn where a fault at time 0 would else come before the first round or after it, by the
    # workers; without faults it counts at once.
    begun: Counter[tuple[str, int]] = Counter()
    of_all: dict[str, Reply] = {}               # role -> the answer of its first node
    for node in kernel.nodes:
        kernel.log((rows.START, 0, node.id, 0))
        role = node.role
        if role not in kernel.plan.alike:
            kernel.open_activation(node, 0, Start(node.id, 0, 0))
            continue
        number = begun[role, node.worker] = begun[role, node.worker] + 1
        asked = kernel.alike.get(role)
        if asked is not None and number & (number - 1):
            if kernel.steady and asked.of is not None:      # of its leaders nothing has come yet
                kernel.activations += 1
                next_round(kernel, node, asked)
                continue
            kernel.ahead[node.id] = of_all[role]
        kernel.open_activation(node, 0, Start(node.id, 0, 0))
        if role not in kernel.alike:
            reply = kernel.ahead[node.id] = kernel.port.reply(node.id, node.worker)
            only = reply.actions[0] if reply.alike else None
            kernel.alike[role] = only if isinstance(only, NextRound) else None
            of_all[role] = Reply(node.id, reply.actions)


def _loop(kernel: Kernel) -> None:
    while True:
        _take_safe_steps(kernel)
        if kernel.round_ended and len(kernel.unwritten) >= kernel.due:
            _release(kernel)
        elif len(kernel.unwritten) >= kernel.full:
            _release(kernel)
            if kernel.progress is not None:     # a person wants to hear of it even if no round ends
                kernel.progress(kernel)
        if kernel.open:
            if not (kernel.imitators and _imitate_next(kernel)):
                _apply_next(kernel)
        elif not kernel.deciding:
            break
        else:                                   # nothing is open, and yet no step was taken: none is left, or too late
            following = kernel.calendar.next_time
            if following is None:
                raise Deadlock(deadlock_report(kernel.nodes, kernel.now))
            raise EndOfTime(end_of_time_report(kernel.nodes, following, kernel.calendar.waiting(following)))


def _release(kernel: Kernel) -> None:
    """Write the rows before which nothing can come any more, by time; at the end all rows up to it."""
    # Nobody knows beforehand when the last decider returns, and the digest is taken of the rows: to cut the tables
    # after the run would leave it to the lookahead which rows there are (`tests/kernel/test_lookahead.py:
    # test_a_run_ends_at_the_same_place_with_lookahead_as_one_event_at_a_time`).
    unwritten = kernel.unwritten
    bound = min([time for _, time in kernel.open], default=FAR)
    following = kernel.calendar.next_time
    if following is not None:
        bound = min(bound, following)
    if bound > kernel.limit or not (kernel.deciding or kernel.open):
        bound = kernel.limit + 1                # nothing after the end belongs to the run
    if bound != kernel.settled:                 # else no unwritten row is before it: all such went the last time
        kernel.settled = bound
        unwritten.sort(key=_time)               # stable: rows of one time stay in the order of their steps
        count = bisect_left(unwritten, bound, key=_time)
        settled = unwritten[:count]
        del unwritten[:count]                   # first: an interrupt must not write a row twice
        kernel.journal.extend(settled)
    # So that the rows of one instant at which many nodes do something are not sorted again and again, nor at each end
    # of a short round: of thousands of peers each ends its own, and a server may take updates one by one. With a look
    # at each end gossip of 6,400 peers takes 12.8 s of CPU in place of 6.0, fedasync of as many clients 7.4 for 4.5.
    kernel.full = 2 * len(unwritten) + UNWRITTEN
    kernel.due = len(unwritten) + max(len(unwritten) // 2, len(kernel.open))
    if kernel.round_ended:
        kernel.round_ended = False
        kernel.journal.round_ended()


def _take_safe_steps(kernel: Kernel) -> None:
    """Take every step that no open activation can still come before; entries of open nodes wait for these."""
    calendar, horizon, limit = kernel.calendar, kernel.horizon, kernel.limit
    while (time := calendar.next_time) is not None:
        if time > limit or (horizon and time >= horizon[0][1]):
            return
        step = calendar.take_step(time)
        for entry in step:
            owner = entry[5]
            if owner is None:
                if entry[3] == STOP and kernel.open:        # an open activation may enter a round before it
                    for waiting in step:
                        calendar.add(time, waiting)
                    return
            elif owner.open_index:
                step = _park(time, step)
                break
        if step:
            kernel.now = time
            _take(kernel, time, step)
            for entry in step:
                owner = entry[5]
                if owner is not None and owner.parked and not owner.open_index:
                    _unpark(kernel, owner)
            limit = kernel.limit


def _park(time: int, step: list[Entry]) -> list[Entry]:
    """Set aside the entries of nodes that are open, until they answer: what they do now comes before. The rest."""
    # To stop at the first of them would be simpler, and one busy server would stop everybody. `tests/kernel/
    # test_lookahead.py` holds the run against a kernel that takes one event at a time.
    free = []
    for entry in step:
        owner = entry[5]
        if owner is not None and owner.open_index:
            if owner.parked is None:
                owner.parked = []
            heappush(owner.parked, (time, entry))
        else:
            free.append(entry)
    return free


def _unpark(kernel: Kernel, node: KNode) -> None:
    """Put the earliest of its parked entries on the calendar again: those of one time, since the next ones wait for an
    answer, too, if one of these opens the node. With all of them thousands went to and fro at each answer of a server.
    """
    parked = node.parked
    assert parked
    due = parked[0][0]
    while parked and parked[0][0] == due:
        kernel.calendar.add(*heappop(parked))


def _take(kernel: Kernel, time: int, step: list[Entry]) -> None:
    """One step: deliveries by (source, seq), then what is computed, then every wait is looked at once."""
    if len(step) == 1:                          # most steps of an irregular run
        entry = step[0]
        if entry[3] == ADVANCE:
            left = leave_link(kernel, time, entry[4])
            if len(left) == 1:
                node = arrive(kernel, time, *left[0], entry[4])
                if node is not None:
                    _look(kernel, time, node)
                return
        else:
            node = arrive(kernel, time, *entry[4]) if entry[3] in _LANDINGS else _take_entry(kernel, time, entry)
            if node is not None:
                _look(kernel, time, node)
            return
        arrivals = [(*one, entry[4]) for one in left]
        rest: list[Entry] = []
    else:
        arrivals, rest = [], []
        for entry in step:
            tag = entry[3]
            if tag == ADVANCE:
                pipe = entry[4]
                arrivals += [(*one, pipe) for one in leave_link(kernel, time, pipe)]
            elif tag in _LANDINGS:
                arrivals.append(entry[4])
            else:
                rest.append(entry)
    arrivals.sort(key=_copy_key)
    touched: dict[int, KNode] = {}
    for arrival in arrivals:
        node = arrive(kernel, time, *arrival)
        if node is not None:
            touched[node.id] = node
    for entry in rest:
        node = _take_entry(kernel, time, entry)
        if node is not None:
            touched[node.id] = node
    for _, node in sorted(touched.items()):
        _look(kernel, time, node)


def _take_entry(kernel: Kernel, time: int, entry: Entry) -> KNode | None:
    """An entry that is no delivery. Returns the node whose wait it may have ended."""
    tag, what = entry[3], entry[4]
    if tag == LOOK:
        return what
    if tag in (COMPUTED, DEADLINE):
        strand, epoch = what
        node = entry[5]
        if strand.epoch != epoch or not node.alive:
            return None
        if node.open_index:                     # another activity of the node goes on in this very step
            _park(time, [entry])
        elif tag == COMPUTED:
            strand.computing = False
            if node.charge is not None:
                computes(kernel, node, time)
            kernel.log((rows.COMPUTED, time, node.id))
            if strand.number:
                kernel.log((rows.BESIDE, time, node.id, strand.number, 0))
            precedents.go_on(kernel, node, Computed(node.id, time, strand.number))
        elif strand.patience is not None:
            resume(kernel, time, node, strand, WaitEnd.TIMEOUT)
        return None
    if tag == FATE:
        node, source = what
        settled = False
        for patience in node.waits_for(source):
            if settle(kernel.nodes, kernel.network, node, patience, source, time):
                settled = True
            elif source in patience.open:
                # it came back before the word of its crash did, but may have left by other means, known later
                known = departure_known_at(kernel.nodes, kernel.network, node, patience, source)
                if known is not None and known > time:
                    kernel.later(node, known, FATE, (node, source))
        return node if settled else None
    if tag == OFFER:
        offer_to(kernel, time, *what)
    elif tag == FLOW_ON:
        enter_next(kernel, time, *what)
    elif tag == FLOW_IN:
        start_flow(kernel, time, *what)
    elif tag == FAILURE:
        fail(kernel, time, *what)
    elif tag == RETURN:
        return_(kernel, time, what)
    elif tag == BACK:
        come_back(kernel, time, what)
    elif tag == EMPTY:
        run_out(kernel, time, *what)
    elif tag == STOP:
        stop_now(kernel, time, what)
    elif tag == SENT:
        if entry[5].open_index:
            _park(time, [entry])
        else:
            look_at_transmission(kernel, time, entry[5], what)
    return None


def _look(kernel: Kernel, time: int, node: KNode) -> None:
    """Once a step: is the node's wait over, or that of an activity of it?"""
    if node.activities:
        look_at_activities(kernel, time, node)
    if node.open_index or not node.alive or node.finished:
        return
    if node.next is not None:
        try_next_round(kernel, time, node)
    elif node.computing:
        if node.following is not None and node.following.abandon and round_is_over(node):
            node.computing = False
            node.epoch += 1                     # its end no longer counts
            if node.charge is not None:
                computes(kernel, node, time)
            close_round(kernel, time, node)
    elif node.patience is not None:
        patience = node.patience
        if len(patience.got) >= patience.need:
            resume(kernel, time, node, node, WaitEnd.COMPLETE)
        elif node.in_round and round_is_over(node):
            resume(kernel, time, node, node, WaitEnd.ROUND_OVER)
        elif patience.fates and not patience.open:
            kernel.oracle_waits[node.role, patience.wait.where] += 1
            resume(kernel, time, node, node, WaitEnd.SETTLED)


def _apply_next(kernel: Kernel) -> None:
    """Wait for the answer of the oldest open activation and apply its actions."""
    # Answers of others may be here already. An answer changes which events are safe, so to take what comes first would
    # let real time decide, and no sort at the end could undo it. `tests/kernel/test_lookahead.py` answers in any order.
    node, time = kernel.open.popleft()
    if node.group is not None:
        _fuse_open(kernel, node)
    reply = kernel.ahead.pop(node.id, None)
    if reply is None:
        reply = kernel.port.reply(node.id, node.worker)
        if kernel.learning and node.id in kernel.learning:
            precedents.learn(kernel, node, reply)
    if time > kernel.limit:                     # the run ended before this
        node.open_index = 0
        return
    if kernel.horizon and kernel.horizon[0][0] == node.open_index:
        kernel.horizon.popleft()
    node.open_index = 0
    if node.parked:
        _unpark(kernel, node)
    spent = reply.uncharged
    node.uncharged += spent
    if spent > node.uncharged_most:
        node.uncharged_most = spent
    if reply.alike:
        _must_be_alike(kernel, node, reply)
    for action in reply.actions:
        _ACT[type(action)](kernel, node, action)
    if reply.then is not None:
        kernel.ahead[node.id] = reply.then
    if reply.error:
        raise RoleFailed(f"{node.name} ({node.role}) failed at {time / 1e9:.9g} s in round {node.round}:\n"
                         f"{reply.error}")
    if kernel.taking is not None:
        _take_now(kernel)


def _take_now(kernel: Kernel) -> None:
    """Take what the answer that was just applied has its node do at this very instant."""
    assert kernel.taking is not None
    node, tag, what = kernel.taking
    kernel.taking, kernel.now = None, node.time
    if _take_entry(kernel, node.time, (NETWORK, node.id, 0, tag, what, node)) is not None:
        _look(kernel, node.time, node)


def _imitate_next(kernel: Kernel) -> bool:
    """Apply what precedents say to the imitators that are the oldest open activations, until a step can be taken.
    False: the oldest is none."""
    opened, imitators, horizon, unwritten = kernel.open, kernel.imitators, kernel.horizon, kernel.unwritten
    calendar, log = kernel.calendar, kernel.log
    applied = False
    while opened and not (applied and len(unwritten) >= kernel.full):
        node, time = opened[0]
        imitator = imitators.get(node.id)
        following = calendar.next_time
        if imitator is None or (applied and following is not None and following <= kernel.limit and (
                not horizon or following < horizon[0][1])):
            break
        opened.popleft()
        applied = True
        if horizon and horizon[0][0] == node.open_index:
            horizon.popleft()
        node.open_index = 0
        if time > kernel.limit:                 # the run ended before this
            continue
        if node.parked:
            _unpark(kernel, node)
            following = calendar.next_time
        imitator.applied += 1
        replies = imitator.precedent.replies
        actions = replies[imitator.applied].actions
        # The two entries of the calendar that it would make, for a message that lies there and a computation of no
        # time, would be taken at once if nothing else is to happen at that time. So they are not made.
        if (len(actions) == 1 and imitator.applied + 1 < len(replies) and (following is None or following > time)
                and (not horizon or time < horizon[0][1])):
            only = actions[0]
            if type(only) is Wait:
                kernel.now, node.inbox, node.unread = time, [], None
                log((rows.RESUME, time, node.id, int(WaitEnd.COMPLETE), 1))
                node.epoch += 2
                kernel.open_activation(node, time)
                continue
            if type(only) is Compute and not (only.cost or only.lane or (node.in_round and round_is_over(node))):
                kernel.now = time
                log((rows.COMPUTE, time, node.id, only.label, 0, only.work, node.round))
                if only.declared:
                    log((rows.STATED, time, node.id))
                log((rows.COMPUTED, time, node.id))
                node.epoch += 1
                kernel.open_activation(node, time)
                continue
        for action in actions:
            if type(action) is Send:
                send(kernel, node, action, imitator.precedent.example)
            else:
                _ACT[type(action)](kernel, node, action)
        if type(action) is NextRound:
            precedents.ended(kernel, node, imitator)
        if kernel.taking is not None:
            _take_now(kernel)
    return applied


def _must_be_alike(kernel: Kernel, node: KNode, reply: Reply) -> None:
    """Fail the run if this node asks for other rounds than the first node of its role, whose request was taken for
    nodes that were not started, too."""
    asked = kernel.alike.get(node.role)
    if asked is not None and reply.actions != [asked]:
        reply.error = other_beginning(node.name, node.role)


def _compute(kernel: Kernel, node: KNode, action: Compute) -> None:
    strand = node if not action.activity else node.activities[action.activity]
    strand.epoch += 1
    node.reads = 0
    strand.patience = None                      # it was parked until its lane became free
    kernel.log((rows.COMPUTE, node.time, node.id, action.label, action.cost, action.work, node.round))
    if action.declared:
        kernel.log((rows.STATED, node.time, node.id))
    if action.activity or action.lane:
        kernel.log((rows.BESIDE, node.time, node.id, action.activity, action.lane))
    fusing = kernel.plan.fuse
    if fusing is not None and action.label in fusing.labels and not action.alone:
        node.group = kernel.groups.setdefault((fusing.lanes[node.id], node.role, action.label), {})
        node.group[node.id] = node.time + action.cost
    if node.in_round and round_is_over(node) and strand is node:
        kernel.take_now(node, LOOK, node)           # the next await after the round is over raises: cut at once
        node.patience = Patience(Wait([], [], 1, PARKED, action.where), node.time)
        return
    strand.computing = True
    if node.charge is not None:
        computes(kernel, node, node.time)
    if action.cost:
        kernel.later(node, node.time + action.cost, COMPUTED, (strand, strand.epoch))
    else:
        kernel.take_now(node, COMPUTED, (strand, strand.epoch))


def _fuse_open(kernel: Kernel, node: KNode) -> None:
    """The answer of `node` needs its computation done. So will those of all that are open: now it is said for all
    of them who is done with whom, and every worker has work."""
    # The groups follow from virtual time, and a lane (node modulo `lanes`) lies whole in one worker, so the last bits
    # of the models are the same for any number of workers. With whoever happens to wait in a worker they would depend
    # on timing; groups across workers would send parameters twice (`test_groups_do_not_depend_on_who_computes`).
    kernel.fuse(node)
    for other, _ in kernel.open:
        if other.group is not None:
            kernel.fuse(other)


_ACT: dict[type, Callable[[Kernel, KNode, Any], None]] = {
    Send: send, SendEach: send_each, Wait: wait, NextRound: next_round, LeaveRound: leave_round, Abstain: abstain,
    Compute: _compute, Report: report, Finish: finish, Reject: reject, BeginActivity: begin_activity,
    EndActivity: end_activity, AwaitSent: await_sent}


def _copy_key(left: tuple[Copy, bool, Tail, int, Pipe | None]) -> tuple[int, int]:
    return left[0].source, left[0].seq
