"""Faults: nodes crash, return, leave and come back; links change.

The role of a node that crashes is closed, and its inbox is emptied; what it has sent still arrives. A wait with a
timeout goes on until then; one without learns after the least latency that nothing more will come (`fates`).
"""

from __future__ import annotations

from emul.base import rows
from emul.base.errors import Deadlock
from emul.kernel.battery import begin, draw
from emul.kernel.calendar import BACK, FAILURE, FAULT, RETURN
from emul.kernel.deadlock import deadlock_report
from emul.kernel.messages import empty_inbox, find_pipe, look_again
from emul.kernel.parts import FLOW, Fault, KNode, LinkChange, NodeCrash, NodeLeave, Pipe
from emul.kernel.rounds import decider_ended, is_through
from emul.kernel.sending import link_changed
from emul.kernel.state import Kernel
from emul.kernel.waits import depart
from emul.network import FlowLink
from emul.roles.events import Close, Start

_STREAM = 1 << 40                   # sequence numbers of the faults of a stream begin at multiples of this
_WITHOUT_PROGRESS = 100_000         # faults of streams, before a run in which no round begins is a deadlock


def plan_faults(kernel: Kernel) -> None:
    """Put the faults of the plan on the calendar, of each stream the first."""
    _lower_lookahead(kernel)
    begin(kernel)
    for place, fault in enumerate(kernel.plan.faults):
        _add(kernel, fault, 2 * place, -1)
    for number in range(len(kernel.plan.streams)):
        _pull(kernel, number, _STREAM * (number + 1))


def _lower_lookahead(kernel: Kernel) -> None:
    """A fault may lower the latency of a link: its sender cannot look ahead farther than that, at any time.

    Flows have paid their latency before: a change of their rate can bring the end of one to the next instant.
    """
    at = {node.vertex: node for node in kernel.nodes}
    for fault in kernel.plan.faults:
        if isinstance(fault, LinkChange) and fault.src in at:
            latency = fault.changes.get("latency_ns")           # or a distribution of them
            if isinstance(kernel.network.link(fault.src, fault.dst), FlowLink):
                latency = 0
            if latency is not None:
                node = at[fault.src]
                node.out_latency = min(node.out_latency, getattr(latency, "least_ns", latency))


def _add(kernel: Kernel, fault: Fault, seq: int, stream: int) -> None:
    """Sequence numbers come in pairs: one for the fault, one for its end."""
    if isinstance(fault, LinkChange):
        number, owner = len(kernel.nodes) + fault.src, kernel.at.get(fault.src)
    else:
        number, owner = fault.node, kernel.nodes[fault.node]
    kernel.calendar.add(fault.at_ns, (FAULT, number, seq, FAILURE, (fault, seq, stream), owner))


def _pull(kernel: Kernel, stream: int, seq: int) -> None:
    """The next fault of a stream goes on the calendar; only one of each is there, since they may be endless."""
    fault = next(kernel.plan.streams[stream], None)
    if fault is not None:
        _add(kernel, fault, seq, stream)


def fail(kernel: Kernel, time: int, fault: Fault, seq: int, stream: int) -> None:
    """One fault happens; of a stream, the next goes on the calendar."""
    if stream >= 0:
        kernel.pulled += 1
        if kernel.pulled > max(_WITHOUT_PROGRESS, 1000 * len(kernel.nodes)):
            raise Deadlock(f"no decider has entered a round during {kernel.pulled} faults\n"
                           + deadlock_report(kernel.nodes, kernel.now))
        _pull(kernel, stream, seq + 2)
    if isinstance(fault, LinkChange):
        _change_link(kernel, time, find_pipe(kernel, fault.src, fault.dst), fault)
    elif isinstance(fault, NodeLeave):
        _go_away(kernel, time, kernel.nodes[fault.node], fault, seq + 1)
    else:
        _crash(kernel, time, kernel.nodes[fault.node], fault, seq + 1)


def _go_away(kernel: Kernel, time: int, node: KNode, fault: NodeLeave, seq: int) -> None:
    """Its role goes on and keeps its memory; what it sends or gets from now on is lost."""
    # A phone without a network is not a phone that was switched off: with a crash for both, a scheme that keeps its
    # variables over an absence would lose them
    # (`test_what_an_absent_node_sends_or_should_get_is_lost_and_its_role_goes_on`).
    if node.away or node.finished:
        return
    node.away = True
    kernel.log((rows.AWAY, time, node.id))
    if fault.until_ns is not None:
        kernel.calendar.add(fault.until_ns, (FAULT, node.id, seq, BACK, node, node))


def come_back(kernel: Kernel, time: int, node: KNode) -> None:
    """A node that was away is heard again."""
    node.away = False
    kernel.log((rows.BACK, time, node.id))


def _crash(kernel: Kernel, time: int, node: KNode, fault: NodeCrash, seq: int) -> None:
    if not node.alive or node.finished:
        return
    if fault.until_ns is not None:
        kernel.calendar.add(fault.until_ns, (FAULT, node.id, seq, RETURN, node, node))
    node.time = time
    node.alive = False
    node.go_down(time, fault.until_ns)
    node.epoch += 1
    node.computing = False
    if node.charge is not None:
        draw(kernel, node, time, 0.0)
    if node.patience is not None:
        node.inbox = node.patience.unread() + node.inbox
    if node.activities:
        for activity in node.activities.values():
            activity.epoch += 1
            if activity.patience is not None:
                node.inbox = activity.patience.unread() + node.inbox
        node.activities = {}
    node.patience = node.next = None
    node.in_round = False
    if node.round > node.left:                  # its round is over for it, whether it returns or not
        node.left = node.round
        node.depart(node.round, time)
    kernel.log((rows.CRASH, time, node.id))
    if kernel.flows is not None:
        kernel.network.flows.forget(node.vertex)
    empty_inbox(kernel, node)
    if node.group is not None:
        kernel.fuse(node)
    kernel.port.post(node.worker, Close(node.id, time, fault.wipe))
    depart(kernel, time, node)
    if fault.until_ns is None or is_through(kernel, node):
        decider_ended(kernel, node)


def run_out(kernel: Kernel, time: int, node: KNode, version: int) -> None:
    """A battery is empty, if nothing has changed since that was reckoned."""
    if node.charge is not None and node.charge.version == version:
        _crash(kernel, time, node, NodeCrash(time, node.id), 0)


def return_(kernel: Kernel, time: int, node: KNode) -> None:
    """A crashed node starts its role anew."""
    node.alive = True
    node.reached = {}
    if node.charge is not None:
        draw(kernel, node, time, node.charge.battery.idle_w)
    kernel.log((rows.RETURN, time, node.id))
    kernel.log((rows.START, time, node.id, node.round))
    kernel.open_activation(node, time, Start(node.id, time, node.round))


def _change_link(kernel: Kernel, time: int, pipe: Pipe, fault: LinkChange) -> None:
    kernel.log((rows.LINK, time, fault.src, fault.dst, dict(fault.changes if fault.told is None else fault.told)))
    pipe.link.change(time, **fault.changes)
    if pipe.kind != FLOW:
        look_again(kernel, pipe)
    elif kernel.flows is not None:
        look_again(kernel, kernel.flows)
    link_changed(kernel, time)
