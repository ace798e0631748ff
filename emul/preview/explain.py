"""A preview of a scenario before it is run: routes, bottlenecks, losses; traffic of a round and memory by scheme.

    explained = explain(load("scenarios/quickstart.yaml"), size_bytes=10**6)

Routes are looked at by pairs of roles; above `EXACT` pairs a sample stands for all, so that nothing grows with the
square of the nodes. The traffic is counted in one round of each scheme, run in this process without losses, faults,
training and virtual compute time. Everything is plain values, ready for JSON; `text` shows them to a person.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf

import msgspec
import numpy as np

from emul import engine
from emul.base.errors import NetworkError, RunError
from emul.base.machine import cores
from emul.base.names import by_kind
from emul.base.plain import PlainDict
from emul.base.streams import generator
from emul.base.units import format_bandwidth
from emul.engine.costs import Charge
from emul.engine.findings import charges
from emul.engine.wiring import Wiring
from emul.kernel.calendar import FAR
from emul.network import LinkRule, Network, build
from emul.network.mediumoutlook import medium_outlooks
from emul.network.models.profiles import NEVER
from emul.preview import footprint
from emul.preview.outlook import Outlook, Route, unverified
from emul.record.columns import columns
from emul.record.journal import MemoryJournal
from emul.record.progress import rounded_size
from emul.record.tables import Derived, derive
from emul.registry import schemes as registry
from emul.roles.world import within
from emul.scenario import NO_EVALUATION, ComputeTime, DropOut, Evaluation, Scenario, Stop, chosen
from emul.scenario.churn import InRounds
from emul.scenario.params import build_params
from emul.scenario.running import NetworkUse
from emul.scenario.schemes import needs_training, parameters
from emul.scenario.sections import rounds_text
from emul.workers.setup import costs_of
from emul.workers.twin import Twin

EXACT = 2_000           # pairs of two roles that are all looked at
_SAMPLE = 32            # nodes of each role in a sample: 32 * 32 pairs
_EXAMPLES = 3
_SPANS = 10             # of rounds in which others take part


# ---- routes ----


def _sampled(network: Network, nodes: Sequence[int], seed: int) -> list[int]:
    """Some of many nodes: of each set of rules that nodes meet the first, then any, drawn from the seed."""
    if len(nodes) <= _SAMPLE:
        return list(nodes)
    kinds = {network.rules_met(v): v for v in reversed(nodes)}
    chosen = sorted(kinds.values())[:_SAMPLE]
    drawn = generator(seed, "explain").choice(len(nodes), _SAMPLE, replace=False)
    rest = [nodes[int(i)] for i in drawn if nodes[int(i)] not in set(chosen)]
    return sorted(chosen + rest[:_SAMPLE - len(chosen)])


def routes(network: Network, rules: Sequence[LinkRule], size_bytes: int, seed: int) -> list[PlainDict]:
    """For every pair of roles that exists: least, median and largest of what the routes are like."""
    outlook = Outlook(network, rules, seed, size_bytes)
    found = []
    for a, first in network.roles.items():
        for b, second in network.roles.items():
            total = len(first) * (len(second) - (first is second))
            those = (first, second) if total <= EXACT else [_sampled(network, nodes, seed) for nodes in (first, second)]
            pairs = [(u, v) for u in those[0] for v in those[1] if u != v]
            if pairs:
                found.append({"from": a, "to": b, "pairs": total, "looked_at": len(pairs),
                              **_of_pairs(network, outlook, pairs)})
    return found


def _of_pairs(network: Network, outlook: Outlook, pairs: Iterable[tuple[int, int]]) -> PlainDict:
    there: list[Route] = []
    unreachable = 0
    for u, v in pairs:
        try:
            there.append(outlook.route(u, v))
        except NetworkError:
            unreachable += 1
    if not there:
        return {"unreachable": unreachable}
    narrow = Counter(f"{network.names[hop.source]}->{network.names[hop.destination]}" for route in there
                     for hop in [route.bottleneck] if hop.bandwidth_bps < inf)
    slowest = max(there, key=lambda route: (_seconds(route), -route.source, -route.destination))
    reused = [route.used_ns / 1e9 for route in there if route.used_ns is not None]
    used = _spread(reused) if reused else None
    return {
        "unreachable": unreachable,
        "hops": _spread([len(route.hops) for route in there]),
        "rtt_ms": _spread([route.rtt_ns / 1e6 for route in there]),
        "bottleneck_bps": _spread([route.bottleneck.bandwidth_bps for route in there]),
        "seconds": _spread([_seconds(route) for route in there]),
        **({} if used is None else {"seconds_used": used}),
        **_with_traffic(network, there),
        "loss": _spread([route.loss for route in there]),
        "retransmissions": _spread([route.retransmissions for route in there]),
        "bottlenecks": dict(sorted(narrow.items(), key=lambda item: (-item[1], item[0]))[:_EXAMPLES]),
        "slowest": [network.names[slowest.source], *(network.names[hop.destination] for hop in slowest.hops)],
    }


def _with_traffic(network: Network, routes: Sequence[Route]) -> PlainDict:
    """The load of the fullest links, and the times at the mean rate that is left; nothing without background traffic.
    """
    if network.background is None:
        return {}
    return {"load": _spread([route.load for route in routes]),
            "seconds_loaded": _spread([inf if route.loaded_ns is None else route.loaded_ns / 1e9 for route in routes])}


def _background(network: Network) -> PlainDict:
    """The links with most background traffic in the mean, bit/s, of those that entries name; nothing without any."""
    if network.background is None:
        return {}
    links = [(network.load_bps(u, v), u, v) for u, v in network.background.looked_at()]
    most = sorted(links, key=lambda one: (-one[0], *one[1:]))[:_EXAMPLES]
    return {"background": {"links": len(links), "most": [
        {"link": f"{network.names[u]}->{network.names[v]}", "mean_bps": load,
         "load": load / float(own) if (own := network.parameters(u, v).bandwidth_bps) else 0.0,
         "greedy": network.elastic_load(u, v).greedy} for load, u, v in most]}}


def _contacts(network: Network) -> PlainDict:
    """The contacts of the first links that a plan names, times in seconds; nothing without a plan."""
    links = network.planned.links
    if not links:
        return {}
    told = [{"link": f"{network.names[u]}->{network.names[v]}", "contacts": len(one),
             "first_s": one.begins[0] / 1e9, "last_s": None if one.ends[-1] == NEVER else one.ends[-1] / 1e9,
             "up_s": None if one.ends[-1] == NEVER else one.up_ns / 1e9, "mean_bps": one.mean_bps,
             "latency_ms": one.typical_ns / 1e6}
            for (u, v), one in sorted(links.items())[:_EXAMPLES]]
    return {"contacts": {"links": len(links), "contacts": sum(map(len, links.values())), "first_links": told,
                         "routes": "fixed" if network.earliest is None else "earliest"}}


def _cells(network: Network, size_bytes: int) -> PlainDict:
    """The media, and the seconds of a message of one station alone and of each with all at once; nothing without any.
    """
    found = [{"medium": one.spec.name, "fair": one.spec.fair, "stations": one.stations, "links": one.links,
              "efficiency": one.spec.share(one.stations),
              "seconds_alone": _spread([8 * size_bytes / bps if bps else inf for bps in one.alone_bps]),
              "seconds_all": _spread([8 * size_bytes / bps if bps else inf for bps in one.all_bps])}
             for one in medium_outlooks(network) if one.stations]
    return {"media": found} if found else {}


def _seconds(route: Route) -> float:
    return inf if route.time_ns is None else route.time_ns / 1e9


def _spread(values: Sequence[float]) -> dict[str, float | None]:
    """Least, median, largest; None stands for infinite, which JSON does not know."""
    ordered = sorted(values)
    spread = {"min": ordered[0], "median": ordered[(len(ordered) - 1) // 2], "max": ordered[-1]}
    return {key: None if value == inf else value for key, value in spread.items()}


# ---- traffic ----

def dry(scenario: Scenario, steps: int = 0, joining: bool = False) -> Scenario:
    """One round without losses, faults, attacks, training, evaluation and virtual compute time. steps: of a local
    training. joining: of the nodes that take part in the first round; else everybody does."""
    (solver, options), = scenario.task["solver"].items()
    still = {key: value for key, value in options.items() if key not in ("steps", "epochs")} | {"steps": steps}
    contacts = scenario.contacts and dataclasses.replace(scenario.contacts, routes="fixed", gap="hold")
    return dataclasses.replace(
        scenario, faults=[fault for fault in scenario.faults if joining and isinstance(fault, InRounds)], traffic=[],
        contacts=contacts, attacks=[], network=NetworkUse(record=False), compute=ComputeTime("zero"),
        stop=Stop(rounds=1), link_rules=[*scenario.link_rules, LinkRule("*", outage="none", queue="unlimited")],
        evaluation=Evaluation(every=NO_EVALUATION), task={**scenario.task, "solver": {solver: still}})


def _dry_wiring(scenario: Scenario, scheme: str, raw: dict[str, object], plugins: Sequence[str],
                joining: bool = False, gone: DropOut | None = None) -> tuple[Wiring, list[str]]:
    """One round as `dry` has it, in which planned links transmit at all times; and what in it depends on what is
    learned. A role that asks for contacts is told those of the plan. gone: who drops out of it, and one more round
    follows."""
    found = registry.find(scheme, plugins)
    params = build_params(found.params, parameters(raw), f"parameters of scheme {scheme}")
    learned = [why if below == ("name",) else f"{'.'.join(map(str, below))}: {value}: {why}"
               for below, value, why in needs_training(found, params, raw)]
    # of zeros a code is shorter, and a round may fail that waits for an update
    still = dry(scenario, int(found.batches or bool(learned)), joining)
    if gone is not None:
        still = dataclasses.replace(still, faults=[gone], stop=Stop(rounds=2))
    wiring = engine.wire(still, scheme, raw, 1, plugins)
    wiring.network.planned.open_all()
    return wiring, learned


def traffic(scenario: Scenario, scheme: str, raw: dict[str, object], plugins: Sequence[str] = (),
            workers: int = 1, joining: bool = True) -> PlainDict:
    """Messages and bytes of the first round of one scheme, of its set-up before that, and of what is sent outside of
    rounds once that has begun. And what memory the run will take in so many worker processes. joining: as in `dry`."""
    by_batch = registry.find(scheme, plugins).batches
    wiring, learned = _dry_wiring(scenario, scheme, raw, plugins, joining)
    journal = MemoryJournal(engine.header(wiring))
    twin = footprint.Weighing()
    try:
        with twin:
            finished = engine.execute(wiring, twin, journal)
    except RunError as error:
        lines = str(error).strip().splitlines()         # between who failed and why stands a traceback
        return {"scheme": wiring.label, "error": " ".join(dict.fromkeys((lines[0], lines[-1].strip())))}
    run = derive(columns(journal.rows), journal.header)
    messages, first = run.messages, [row for row in run.rounds if row["round"] == 1]
    begun_ns = min((row["entered_ns"] for row in first), default=inf)
    roles = np.array(wiring.plan.roles, dtype=object)
    rows: dict[str, dict[tuple[str, str, str], list[int]]] = {"set_up": {}, "round": {}, "outside": {}}
    for i in range(len(messages.source)):
        # to oneself costs nothing; nodes that do not decide may be in their second round before the first has ended
        if messages.hops[i] > 0 and messages.round[i] <= 1:
            part = "round" if messages.round[i] else "set_up" if messages.sent_ns[i] <= begun_ns else "outside"
            row = rows[part].setdefault((messages.kinds[messages.kind[i]], str(roles[messages.source[i]]),
                                         str(roles[messages.target[i]])), [0, 0, 0])
            row[0] += 1
            row[1] += int(messages.payload_bytes[i])
            row[2] += int(messages.wire_bytes[i])
    real = engine.wire(scenario, scheme, raw, 1, plugins)
    priced = prices(real, run if real.times is None else _with_times(scenario, scheme, raw, plugins, real, joining))
    seen = twin.seen
    seen.messages, seen.links = len(messages.source), len(wiring.network.links())
    seen.journal_head, seen.journal = footprint.journal_bytes(journal.header, journal.rows)
    return {"scheme": wiring.label, "batches": by_batch, "seconds": finished.kernel.end_ns / 1e9,
            **{part: _sum(found) for part, found in rows.items()}, "learned": learned,
            "taking_part": taking_part(wiring.plan.roles, wiring.plan.rounds, scenario.stop.rounds),
            "failed": [f"{row['node_name']}: {row['why']}" for row in first if row["why"]],
            "seconds_of_round": _seconds_of(first),
            "computations": priced, **({} if real.times is None else {"training": real.times.rows()}),
            "memory": footprint.estimate(scenario, wiring.network, Counter(wiring.plan.roles), seen, workers)}


def _seconds_of(rounds: Sequence[PlainDict]) -> dict[str, float]:
    """The seconds of the first round by what they went for, if the scheme reports `seconds_...`; {}: it does not."""
    return {key.removeprefix("seconds_"): value for row in rounds[:1] for key, value in row.items()
            if key.startswith("seconds_")}


def taking_part(roles: Sequence[str], rounds: Mapping[int, Sequence[tuple[int, int]]], last: int | None,
                ) -> list[PlainDict]:
    """Of a run that nodes join or leave by round, up to round `last`: from, to (None: the end), and how many of each
    role take part. [] where everybody does in every round. rounds: as `World.rounds`.

    >>> taking_part(["server", "client", "client"], {2: [(10, 19)]}, 30)[:2]
    [{'from': 1, 'to': 9, 'server': 1, 'client': 1}, {'from': 10, 'to': 19, 'server': 1, 'client': 2}]
    """
    if not rounds:
        return []
    begins = sorted({1, *(at for spans in rounds.values() for first, end in spans for at in (first, end + 1))})
    begins = [at for at in begins if at <= (FAR if last is None else last)]
    kinds = list(dict.fromkeys(roles))
    return [{"from": begin, "to": end, **{kind: sum(
        role == kind and (node not in rounds or within(rounds[node], begin)) for node, role in enumerate(roles))
        for kind in kinds}}
        for begin, end in zip(begins, [*(at - 1 for at in begins[1:]), last], strict=True)]


def computations(scenario: Scenario, scheme: str, raw: dict[str, object], plugins: Sequence[str] = (),
                 ) -> tuple[list[Charge], list[str]]:
    """Of the computations of a scheme's first round: ("scheme/role/label", what is computed, work) of each. And the
    entries that nothing prices, of this round and of those after which a node is missing. ([], []) if the round fails.
    """
    wiring, learned = _dry_wiring(scenario, scheme, raw, plugins)
    wiring.setups[0].named = True
    journal = MemoryJournal(engine.header(wiring))
    try:
        finished = engine.execute(wiring, Twin(computes=bool(learned)), journal)
    except RunError:
        return [], []
    run = derive(columns(journal.rows), journal.header)
    costs, unpriced = costs_of(engine.wire(scenario, scheme, raw, 1, plugins).setups[0]), set[str]()
    for each in [run, *_recovering(scenario, scheme, raw, plugins, run)]:
        roles, done = each.header["roles"], each.computations
        unpriced.update(f"{scheme}/{roles[node]}/{done.labels[label]}" for node, label, stated in zip(
            done.node.tolist(), done.label.tolist(), done.declared.tolist(), strict=True)
            if not stated and not costs.priced_by(node, roles[node], done.labels[label]))
    return sorted(charges(wiring, finished.timings)), sorted(unpriced)


def _recovering(scenario: Scenario, scheme: str, raw: dict[str, object], plugins: Sequence[str], run: Derived,
                ) -> Iterator[Derived]:
    """Two rounds each, in the first of which a node drops out just before one of the types of messages that it sent in
    `run`: some computations are only asked for where somebody is missing, and a run would end at the first of them."""
    roles: list[str] = run.header["roles"]
    sent = run.messages
    several = {role for role, count in Counter(roles).items() if count > 1}
    last = {(roles[source], sent.kinds[kind]): source for source, kind, round_ in zip(
        sent.source.tolist(), sent.kind.tolist(), sent.round.tolist(), strict=True)
        if round_ == 1 and roles[source] in several}
    for (_, kind), source in sorted(last.items()):
        wiring, learned = _dry_wiring(scenario, scheme, raw, plugins,
                                      gone=DropOut(run.header["names"][source], kind, first=1, last=1))
        journal = MemoryJournal(engine.header(wiring))
        with contextlib.suppress(RunError):         # then it is no round to recover from
            engine.execute(wiring, Twin(computes=bool(learned)), journal)
            yield derive(columns(journal.rows), journal.header)


def _with_times(scenario: Scenario, scheme: str, raw: dict[str, object], plugins: Sequence[str], real: Wiring,
                joining: bool) -> Derived:
    """The first round again, with the times of the model: a scheme may ask for those of a number of steps of its own.
    """
    wiring, learned = _dry_wiring(scenario, scheme, raw, plugins, joining)
    wiring.setups[:] = [msgspec.structs.replace(
        wiring.setups[0], **{name: getattr(real.setups[0], name) for name in (
            "cost_mode", "updates", "islands", "cost_default", "speeds")})]
    journal = MemoryJournal(engine.header(wiring))
    with contextlib.suppress(RunError):             # the round without times has said it
        engine.execute(wiring, Twin(computes=bool(learned)), journal)
    return derive(columns(journal.rows), journal.header)


def prices(wiring: Wiring, run: Derived) -> list[PlainDict]:
    """A row for each role and label of the computations of a run: how often, what prices them under `wiring`, and the
    seconds that one takes at its node; None where these are measured or recorded."""
    costs, roles, speeds = costs_of(wiring.setups[0]), run.header["roles"], wiring.setups[0].speeds
    found: dict[tuple[str, str], tuple[list[str], list[float]]] = {}
    done, asked = run.computations, Counter[int]()
    for node, label, work, stated_ns, stated in zip(done.node.tolist(), done.label.tolist(), done.work.tolist(),
                                                    done.cost_ns.tolist(), done.declared.tolist(), strict=True):
        role, text = roles[node], done.labels[label]
        by = "scheme" if stated else costs.priced_by(node, role, text)
        sources, seconds = found.setdefault((role, text), ([], []))
        sources.append(by)
        if by not in ("", "measured", "recorded"):
            known = stated or by == "model"
            cost = stated_ns if known else costs.cost_ns(node, role, text, work, asked[node], speeds[node])
            seconds.append((cost or 0) / 1e9)
        asked[node] += 1
    return [{"role": role, "label": label, "times": len(sources), "priced_by": sorted(set(sources)),
             "seconds": _spread(seconds) if seconds else None}
            for (role, label), (sources, seconds) in sorted(found.items())]


def _sum(rows: dict[tuple[str, str, str], list[int]]) -> PlainDict:
    by_type = [{"type": kind, "from": a, "to": b, "messages": row[0], "payload_bytes": row[1], "wire_bytes": row[2]}
               for (kind, a, b), row in rows.items()]
    return {key: sum(entry[key] for entry in by_type)       # type: ignore[misc]
            for key in ("messages", "payload_bytes", "wire_bytes")} | {"by_type": by_type}


# ---- all of it ----

def explain(scenario: Scenario, size_bytes: int = 10**6, scheme: str | None = None,
            plugins: Sequence[str] = (), workers: int | None = None) -> PlainDict:
    """Everything, as plain values. workers: processes that the memory is for; None: one a core, as in a run.

    Raises ScenarioError for a scheme that the scenario does not have.
    """
    crew = cores() if workers is None else workers
    entries = chosen(scenario.schemes, scheme, str(scenario.path or scenario.name))
    network = build(scenario.topology, scenario.link_rules, scenario.seed, joined=scenario.equipment,
                    traffic=scenario.traffic, contacts=scenario.contacts, media=scenario.media, radio=scenario.radio)
    return {
        "scenario": scenario.name,
        "size_bytes": size_bytes,
        "vertices": len(network.names),
        "roles": {role: len(nodes) for role, nodes in network.roles.items()},
        **_contacts(network),
        **_cells(network, size_bytes),
        **_background(network),
        "routes": routes(network, scenario.link_rules, size_bytes, scenario.seed),
        "schemes": [traffic(scenario, name, raw, plugins, crew) for name, raw in entries
                    if not registry.find(name, plugins).guided],
        "unused_attributes": [{"of": kind, "attribute": name, "count": count}
                              for (kind, name), count in sorted(network.unused_attributes().items())],
        "unmatched_rules": [rule.match for rule in network.unmatched_rules()],
        "warnings": by_kind([*network.warnings(), *unverified(network, scenario.seed), *scenario.warnings]),
    }


# ---- for a person ----

Cells = list[list[str]]


def tables(explained: PlainDict) -> list[tuple[str, Cells]]:
    """(title, rows, the first of them the head) of the tables that show it."""
    found = [(f"Routes, and a message of {rounded_size(explained['size_bytes'])} (least / median / largest)",
              [["from", "to", "routes", "hops", "RTT", "bottleneck", "time", "lost", "sent again"],
               *(_route_row(row) for row in explained["routes"])])]
    if explained["schemes"]:
        found.append(("The first round, nothing lost, no time for computing",
                      [["scheme", "messages", "payload", "on the links", "virtual time", "before the first round"],
                       *(_scheme_row(row) for row in explained["schemes"])]))
    for row in explained["schemes"]:
        in_round = "in a round of one batch" if row.get("batches") else "in the first round"
        for part, title in (("set_up", "before the first round"), ("round", in_round),
                            ("outside", "outside of rounds, once the first has begun")):
            entries = row.get(part, {}).get("by_type", [])
            if entries:
                found.append((f"{row['scheme']}, {title}", [
                    ["type", "from", "to", "messages", "payload", "on the links"],
                    *([e["type"], e["from"], e["to"], f"{e['messages']:,}", rounded_size(e["payload_bytes"]),
                       rounded_size(e["wire_bytes"])] for e in entries)]))
    for row in explained["schemes"]:
        if row.get("taking_part"):
            found.append((f"{row['scheme']}, who takes part", _members(row["taking_part"])))
    for row in explained["schemes"]:
        if row.get("computations"):
            found.append((f"{row['scheme']}, computations of the first round, and the virtual time of one", [
                ["role", "label", "times", "seconds", "priced by"],
                *([one["role"], one["label"], f"{one['times']:,}",
                   _three(one["seconds"], _time) if one["seconds"] else "-",
                   " and ".join(by or "nothing" for by in one["priced_by"])] for one in row["computations"])]))
    for row in explained["schemes"]:
        if row.get("seconds_of_round"):
            parts: dict[str, float] = row["seconds_of_round"]
            whole = sum(parts.values()) or 1.0
            found.append((f"{row['scheme']}, where the seconds of the first round go", [
                ["part", "seconds", "share"],
                *([part, _time(seconds), f"{seconds / whole:.0%}"] for part, seconds in parts.items())]))
    return [*found, *_training(explained["schemes"]), *_memory(explained["schemes"])]


def _members(spans: Sequence[PlainDict]) -> Cells:
    """Rounds and how many of each role, of the first spans."""
    cells = [["rounds" if key == "from" else key for key in spans[0] if key != "to"],
             *([rounds_text(one["from"], one["to"]), *(f"{count:,}" for key, count in one.items()
                                                      if key not in ("from", "to"))] for one in spans[:_SPANS])]
    return cells if len(spans) <= _SPANS else [*cells, [f"{len(spans) - _SPANS} more", *[""] * (len(cells[0]) - 1)]]


_PARTS = ("processes", "nodes", "links", "roles", "messages", "models", "data", "tables")


def _training(schemes: Sequence[PlainDict]) -> list[tuple[str, Cells]]:
    """A table for each scheme, or one for all where nothing in them differs, as for all that train on all clients."""
    told = [(row["scheme"], row["training"]) for row in schemes if row.get("training")]
    if len(told) > 1 and all(rows == told[0][1] for _, rows in told):
        told = [(", ".join(scheme for scheme, _ in told), told[0][1])]
    title = "a step of training by device: of each operation compute, memory and its launch add up"
    return [(f"{scheme}, {title}", [
        ["device", "nodes", "batch", "F", "B", "k", "needs", "compute", "memory", "launches", "bound", "a step",
         "energy", "an update"],
        *([row["device"], f"{row['nodes']:,}", f"{row['batch']:,}", f"{row['flops']:.4g} FLOP",
           rounded_size(round(row["bytes"])), f"{row['launches']:,.0f}", rounded_size(round(row["memory_bytes"])),
           _time(row["compute_s"]), _time(row["memory_s"]), _time(row["launch_s"]), row["bound"], _time(row["step_s"]),
           "-" if row["joules"] is None else f"{row['joules']:.3g} J", _time(row["update_s"])] for row in rows)])
        for scheme, rows in told]


def _memory(schemes: Sequence[PlainDict]) -> list[tuple[str, Cells]]:
    told = [(row["scheme"], row["memory"]) for row in schemes if "memory" in row]
    if not told:
        return []
    count = told[0][1]["workers"]
    where = "in one process" if not count else f"with {count} worker{'s' * (count > 1)}"
    return [(f"Memory of a run {where}, estimated: all processes at their peak", [
        ["scheme", "total", *_PARTS, "journal on disk"],
        *([scheme, *(rounded_size(memory[part]) for part in ("total", *_PARTS, "journal_on_disk"))]
          for scheme, memory in told)])]


def _route_row(row: PlainDict) -> list[str]:
    looked = "" if row["looked_at"] == row["pairs"] else f" ({row['looked_at']:,} looked at)"
    lost = f", {row['unreachable']:,} unreachable" if row["unreachable"] else ""
    head = [row["from"], row["to"], f"{row['pairs']:,}{looked}{lost}"]
    if "hops" not in row:
        return [*head, *["-"] * 6]
    return [*head, _three(row["hops"], str), _three(row["rtt_ms"], lambda ms: f"{ms:.4g}") + " ms",
            _three(row["bottleneck_bps"], lambda bps: format_bandwidth(round(bps))),
            _three(row["seconds"], _time), _three(row["loss"], lambda p: f"{p:.3g}"),
            _three(row["retransmissions"], lambda n: f"{n:.3g}")]


def _time(s: float) -> str:
    return f"{s:,.4g} s" if s >= 1 else f"{s * 1e3:.4g} ms"


def _three(spread: PlainDict, show: Callable[[float], str]) -> str:
    """"1 / 2 / 3", or "1" where all are the same."""
    shown = ["infinite" if value is None else show(value) for value in spread.values()]
    return shown[0] if len(set(shown)) == 1 else " / ".join(shown)


def _scheme_row(row: PlainDict) -> list[str]:
    if "error" in row:
        return [row["scheme"], f"failed: {row['error']}", "", "", "", ""]
    part, before = row["round"], row["set_up"]
    first = f"{before['messages']:,} messages, {rounded_size(before['wire_bytes'])}" if before["messages"] else "-"
    return [row["scheme"], f"{part['messages']:,}", rounded_size(part["payload_bytes"]),
            rounded_size(part["wire_bytes"]), _time(row["seconds"]), first]


def _contact_notes(contacts: PlainDict) -> list[str]:
    way = "routes and their times" if contacts["routes"] == "earliest" else "times of routes"
    found = [f"contacts: {contacts['contacts']:,} on {contacts['links']:,} links; {way}: of a message sent at 0 s; the "
             "first round is shown without them"]
    for row in contacts["first_links"]:
        end = "the end of time" if row["last_s"] is None else (
            f"{row['last_s']:,.6g} s, {row['up_s']:,.6g} s of it in contacts")
        found.append(f"{row['link']}: {row['contacts']:,} contacts from {row['first_s']:,.6g} s to {end}; mean rate "
                     f"{format_bandwidth(row['mean_bps'])}, median latency {row['latency_ms']:.4g} ms")
    return found


def _cell_note(row: PlainDict, size: str) -> str:
    alone, every = (_three(row[key], _time) for key in ("seconds_alone", "seconds_all"))
    return (f"medium {row['medium']}: {row['stations']:,} stations share its time, fair in {row['fair']}; with all of "
            f"them {row['efficiency']:.3g} of it carry bits; a message of {size}:"
            f" {alone} alone, {every} while all send")


def _background_note(background: PlainDict) -> str:
    most = []
    for row in background["most"]:
        greedy = f", greedy flows: {row['greedy']}" if row["greedy"] else ""
        most.append(f"{row['link']} ({format_bandwidth(round(row['mean_bps']))}, load {row['load']:.3g}{greedy})")
    return (f"background traffic, which no bytes of schemes count, on {background['links']:,} links; in the mean most "
            f"on {', '.join(most)}")


def notes(explained: PlainDict) -> list[str]:
    """Notes beside the tables: bottlenecks, slowest routes, what has no effect."""
    found = _contact_notes(explained["contacts"]) if "contacts" in explained else []
    found += [_cell_note(row, rounded_size(explained["size_bytes"])) for row in explained.get("media", ())]
    if "background" in explained:
        found.append(_background_note(explained["background"]))
    for row in explained["routes"]:
        if row.get("bottlenecks") and (row["hops"]["max"] > 1 or row["seconds"]["min"] != row["seconds"]["max"]):
            links = ", ".join(f"{link} ({count:,})" for link, count in row["bottlenecks"].items())
            found.append(f"bottlenecks {row['from']} to {row['to']}: {links}; slowest: {' -> '.join(row['slowest'])}")
        if "load" in row:
            load, alone, beside = _three(row["load"], "{:.3g}".format), *(
                _three(row[key], _time) for key in ("seconds", "seconds_loaded"))
            found.append(f"{row['from']} to {row['to']}: background traffic takes {load} of the fullest link in the "
                         f"mean; {alone} alone, {beside} at the mean rate that is left")
        if "seconds_used" in row:
            new, used = (_three(row[key], _time) for key in ("seconds", "seconds_used"))
            found.append(f"{row['from']} to {row['to']}: {new} on a new connection, {used} on one that has just "
                         "carried such a message")
    for row in explained["schemes"]:
        found += [f"{row['scheme']}: {why}; so the first round may depend on what is learned, "
                  "and is shown with one step of training of each client" for why in row.get("learned", ())]
        found += [f"{row['scheme']}: the first round failed, and is shown as far as it got: {why}"
                  for why in row.get("failed", ())]
    unused = Counter({(row["of"], row["attribute"]): row["count"] for row in explained["unused_attributes"]})
    for kind in ("edges", "vertices"):
        names = ", ".join(f"{name} ({count:,})" for (of, name), count in sorted(unused.items()) if of == kind)
        if names:
            found.append(f"attributes of {kind} without an effect: {names}")
    found += [f'the rule "{match}" matches no link' for match in explained["unmatched_rules"]]
    return found + [f"warning: {warning}" for warning in explained["warnings"]]
