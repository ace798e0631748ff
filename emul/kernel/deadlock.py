"""The text of the errors about deadlocks, the end of virtual time, and runs without progress: for each node its wait,
since when, and at which line of its role."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from emul.base.names import listed
from emul.kernel.calendar import COMPUTED, DEADLINE, FAR, LAND, Entry
from emul.kernel.parts import KNode, Strand
from emul.roles.events import PARKED, SENDING

_EACH = 50                          # nodes of which a report tells each one's story


def deadlock_report(nodes: Sequence[KNode], now: int) -> str:
    """That nothing can happen any more, and who waits for what."""
    return (f"deadlock at {now / 1e9:.9g} s: no delivery, timer, computation or fault of a node is left\n"
            + who_waits(nodes))


def end_of_time_report(nodes: Sequence[KNode], time: int, entries: Sequence[Entry]) -> str:
    """That the next event, at `time` (ns), is after the end of virtual time; who waits for what."""
    _, number, _, tag, what, owner = min(entries, key=lambda entry: entry[:3])
    node = owner if owner is not None else nodes[number] if 0 <= number < len(nodes) else None
    if tag == LAND:
        said = f"a message of {nodes[what[0].source].name} to {nodes[what[0].target].name}"
    else:
        said = {COMPUTED: "the end of a computation", DEADLINE: "a deadline"}.get(tag, "an event")
        said += f" of {node.name} ({node.role})" if node is not None else " of the network"
    return (f"virtual time ends at {FAR / 1e9:.9g} s (2^62 ns, 146 years): the next event, {said}, would come at "
            f"{time / 1e9:.9g} s\n{who_waits(nodes)}")


def who_waits(nodes: Sequence[KNode]) -> str:
    """A line for each node: what it waits for. Of many nodes those with one story share a line."""
    lines = []
    alike: dict[tuple[object, ...], list[KNode]] = {}
    for node in sorted(nodes, key=lambda node: not node.alive or node.finished):        # waiting ones, then ended ones
        own = (node.id,) if len(nodes) <= _EACH else ()
        alike.setdefault((node.role, _story(nodes, node), *own), []).append(node)
    for (role, told, *_), members in alike.items():
        lines.append(f"  {_first(members, 1)} ({role}): {told}")
    return "\n".join(lines)


def _first(nodes: Sequence[KNode], most: int, note: Callable[[KNode], str] = lambda node: "") -> str:
    """The names of nodes, or of the first so many and how many there are beyond."""
    return listed([node.name + note(node) for node in nodes], most)


def _story(nodes: Sequence[KNode], node: KNode) -> str:
    beside = [f"; its {activity.label}: {_strand(nodes, node, activity)}" for activity in node.activities.values()]
    return _own(nodes, node) + "".join(beside)


def _own(nodes: Sequence[KNode], node: KNode) -> str:
    if not node.alive:
        return f"crashed at {node.downs[-1][0] / 1e9:.9g} s"
    if node.finished:
        return f"ended at {(node.finished_at or 0) / 1e9:.9g} s"
    if node.next is not None:
        leaders = _first([nodes[n] for n in node.leaders], _EACH)
        return f"waiting for a round after {node.round}" + (f" of {leaders}" if leaders else "") + \
            f" ({node.next.where})"
    return _strand(nodes, node, node)


def _strand(nodes: Sequence[KNode], node: KNode, strand: Strand) -> str:
    """The wait of a role itself, or of an activity of it."""
    patience = strand.patience
    if patience is None:
        return "computing" if strand.computing else f"active at {node.time / 1e9:.9g} s"
    if patience.wait.deadline == PARKED:
        return f"waiting since {patience.since / 1e9:.9g} s for another part of its role ({patience.wait.where})"
    if patience.wait.deadline == SENDING:
        return f"waiting since {patience.since / 1e9:.9g} s until what it sends has left ({patience.wait.where})"
    missing = sorted(set(patience.wait.sources or ()) - patience.got.keys())
    kinds = " or ".join(sorted(patience.kinds)) or "any message"
    since = f"waiting since {patience.since / 1e9:.9g} s for {kinds}"
    if patience.sources is None:
        return f"{since} from anybody ({patience.wait.where})"
    sources = _first([nodes[n] for n in missing], _EACH, lambda source: _unasked(source, node))
    return f"{since} from {sources} ({patience.wait.where})"


def _unasked(source: KNode, node: KNode) -> str:
    """A follower that has never been told of the round cannot answer in it."""
    if node.in_round and source.leaders and source.round < node.round:
        return f" (not asked in round {node.round})"
    return ""
