"""Nodes that are alike: in a round that one message begins, the first of a class answers for all of it.

Under `training: skip` nodes of one class (`Plan.classes`) do the same if they enter the same round with the same
broadcast message. The first of them is asked. Its replies are the *precedent*, and the others of its class *imitate*:
the kernel applies its actions to them as if their workers had answered so, and frames that it has sent stand for
theirs. Rows, times and fates are those of nodes that answer for themselves.

    an example     enters, is asked, and answers; its worker says whether that has left a trace (`Reply.traceless`)
    an imitator    enters, waits until the example has answered, and computes, sends and leaves as that did;
                   where it meets what the example did not, its worker gets the events that it was spared

A class whose example leaves a trace, or does what depends on its own time, is asked node by node from then on.
"""

from __future__ import annotations

from msgspec import structs

from emul.base.errors import RoleFailed
from emul.kernel.parts import Imitator, KNode, Payload, Precedent
from emul.kernel.state import Kernel
from emul.roles.events import (
    NO_DEADLINE,
    Compute,
    Computed,
    Drop,
    Entered,
    LeaveRound,
    NextRound,
    Ready,
    Reply,
    Send,
    Wait,
    WaitEnd,
)

_SAME_FOR_ALL = (Send, Wait, Compute, LeaveRound, NextRound)        # actions that name neither their node nor its time


def enter(kernel: Kernel, node: KNode, event: Entered) -> None:
    """Open the activation of a node that enters a round: as an example, an imitator, or on its own."""
    classes = kernel.plan.classes
    if classes and event.round and classes[node.id] >= 0:
        event.sent = node.sent
        # A role that goes on at once (`Unread.last`) has nothing but this message: nobody can come between.
        if event.unread is not None and event.unread.last and node.inbox[0].payload is not None:
            _find_precedent(kernel, node, event)
    kernel.open_activation(node, event.now, event)


def _find_precedent(kernel: Kernel, node: KNode, event: Entered) -> None:
    copy, number = node.inbox[0], kernel.plan.classes[node.id]
    if number in kernel.unlike:
        return
    precedent = kernel.precedents.get(number)
    if precedent is None or precedent.payload is not copy.payload or precedent.round != event.round:
        if precedent is not None:
            precedent.retired = True
            _let_go(kernel, precedent)
        kernel.precedents[number] = kernel.learning[node.id] = Precedent(number, node.id, copy.payload, event.round)
    elif not precedent.failed:
        kernel.imitators[node.id] = Imitator(precedent, event, copy)
        precedent.imitators += 1
        if not precedent.replies:
            precedent.waiting.append((node, event))


def learn(kernel: Kernel, node: KNode, reply: Reply) -> None:
    """Take the reply of an example, and those that it has given ahead, for its class; before they are applied."""
    precedent, replies = kernel.learning[node.id], _all_of(reply)
    actions = [action for one in replies for action in one.actions]
    last = actions[-1] if actions else None
    computes = type(last) is Compute
    begun = precedent.replies or len(replies) > 1           # it has read the message, and did nothing before
    if not (begun and (computes or (type(last) is NextRound and replies[-1].traceless))
            and all(map(_same_for_all, actions)) and not any(one.error for one in replies)):
        del kernel.learning[node.id]
        kernel.unlike.add(precedent.number)
        precedent.failed = True
        for other, event in precedent.waiting:
            if type(event) is Entered:
                del kernel.imitators[other.id]
                precedent.imitators -= 1
            else:
                kernel.imitators[other.id].events.pop()
                _ask(kernel, other, kernel.imitators[other.id])
            kernel.port.post(other.worker, event)
        precedent.asked, precedent.waiting, precedent.retired = False, [], True
        _let_go(kernel, precedent)
        return
    precedent.heads.add(len(precedent.replies))
    precedent.replies += replies
    precedent.asked, precedent.waiting = False, []
    for action in actions:
        if type(action) is Send and action.frames is None:
            _keep_frames(kernel, node, action, precedent)
    if not computes:
        del kernel.learning[node.id]


def _all_of(reply: Reply) -> list[Reply]:
    """The reply, and those that it brings to the events that come next."""
    found = [reply]
    while (following := found[-1].then) is not None:
        found.append(following)
    return found


def _same_for_all(action: object) -> bool:
    if type(action) is Wait:
        return action.deadline == NO_DEADLINE
    if type(action) is Compute:
        return action.cost >= 0 and not (action.activity or action.alone)
    return type(action) in _SAME_FOR_ALL


def _keep_frames(kernel: Kernel, node: KNode, action: Send, precedent: Precedent) -> None:
    """Keep the frames of an example's message where its targets read them, for copies that imitators will send: they
    count as one more copy to each target, until `_let_go`."""
    payload = Payload(node.id, action.first, node.worker)
    for target in action.to:
        payload.expect(kernel.nodes[target].worker)
    kernel.shared[node.id, action.first] = payload
    precedent.sent.append((payload, action.to))


def go_on(kernel: Kernel, node: KNode, event: Ready | Computed) -> None:
    """Open the activation of a node in its round, be it an example or an imitator."""
    imitator = kernel.imitators.get(node.id) if kernel.imitators else None
    if imitator is not None:
        if not _imitates(node, imitator, event):
            _ask(kernel, node, imitator)
    elif kernel.learning and node.id in kernel.learning and node.id not in kernel.ahead:
        if type(event) is Ready:                    # its computation was cut
            kernel.learning.pop(node.id).failed = True
        else:
            kernel.learning[node.id].asked = True
    kernel.open_activation(node, event.now, event)


def _imitates(node: KNode, imitator: Imitator, event: Ready | Computed) -> bool:
    """True if the example has answered this event, or will have when it is the imitator's turn: answers are applied in
    the order of the activations."""
    precedent, following = imitator.precedent, imitator.applied + 1
    if type(event) is Ready and event.outcome != WaitEnd.COMPLETE:
        return False
    if following == len(precedent.replies) and precedent.asked:
        precedent.waiting.append((node, event))
    elif following >= len(precedent.replies):
        return False
    elif following not in precedent.heads:          # the example has answered it with the event before
        return True
    imitator.events.append(event)
    return True


def _ask(kernel: Kernel, node: KNode, imitator: Imitator) -> None:
    """Have the role of an imitator really come to where it is. Raises RoleFailed: it has done otherwise than others."""
    del kernel.imitators[node.id]
    entered, payload = imitator.events[0], imitator.copy.payload
    assert payload is not None
    assert type(entered) is Entered
    assert entered.unread is not None
    entered.unread.ref.last = payload.settle(node.worker)
    replies: list[Reply] = []
    for event in imitator.events:
        kernel.port.post(node.worker, event)
        replies += _all_of(kernel.port.reply(node.id, node.worker))
    applied = imitator.precedent.replies[:imitator.applied + 1]
    if [list(map(_without_node, one.actions)) for one in replies] != [
            list(map(_without_node, one.actions)) for one in applied]:
        raise RoleFailed(f"{node.name} ({node.role}) does otherwise in round {node.round} than a node of its role that "
                         "has the same message, number of samples and speed: the scheme must not have "
                         f"{node.role!r} in `interchangeable`")
    for send in (action for reply in replies for action in reply.actions if type(action) is Send):
        homes = {kernel.nodes[target].worker for target in send.to} if send.frames is None else set()
        if node.worker in homes:                    # what its worker has kept is what the example's stands for
            kernel.port.post(node.worker, Drop(node.id, send.first))
        if homes - {node.worker}:
            kernel.port.forget(node.id, send.first, node.worker)
    _one_less(kernel, imitator.precedent)


def _without_node(action: object) -> object:
    """An action without the number of its message and the place of its frames, in which nodes that are alike differ."""
    return structs.replace(action, first=0, frames=None) if type(action) is Send else action


def ended(kernel: Kernel, node: KNode, imitator: Imitator) -> None:
    """An imitator has done all that its precedent did: the message that began it is read."""
    del kernel.imitators[node.id]
    payload = imitator.copy.payload
    assert payload is not None
    if payload.settle(node.worker) and payload.has(node.worker):
        kernel.port.post(node.worker, Drop(payload.source, payload.first))
    _one_less(kernel, imitator.precedent)


def _one_less(kernel: Kernel, precedent: Precedent) -> None:
    precedent.imitators -= 1
    _let_go(kernel, precedent)


def _let_go(kernel: Kernel, precedent: Precedent) -> None:
    """Drop the frames of an example's messages once no node will send them any more."""
    if precedent.imitators or not precedent.retired:
        return
    for payload, targets in precedent.sent:
        del kernel.shared[payload.source, payload.first]
        for target in targets:
            worker = kernel.nodes[target].worker
            if worker != payload.home:
                payload.undecided -= 1
                if not payload.undecided:
                    kernel.port.forget(payload.source, payload.first, payload.home)
            if payload.settle(worker) and payload.has(worker):
                kernel.port.post(worker, Drop(payload.source, payload.first))
    precedent.sent = []
