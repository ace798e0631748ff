"""Properties that every scheme must have, on a small scenario and on what is derived from it; and every learning task.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from emul import engine
from emul.base import rows as R
from emul.base.plain import PlainDict
from emul.engine.setups import fused
from emul.learning import Task
from emul.learning.trial import trial
from emul.network import LinkRule, OutageSpec
from emul.record.journal import repeats
from emul.registry import schemes
from emul.roles import Scheme
from emul.scenario import Crash, FusedTraining, Scenario, load, loads
from emul.scenario.params import scenario_keys
from emul.testing.case import Check, Invented, KeepingTwin, Metered
from emul.testing.shuffled import Shuffled
from emul.testing.world import MS, Ran

SMALL = """
emul: 1
name: conformance
seed: 7
topology: {generator: star_mesh, clients: 5}
links:
  - {match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}
  - {match: "client*->server", outage: {model: bernoulli, p: 0.05, per: round}}
task:
  data: {set: digits}
  partition: {dirichlet: 0.5}
  model: logistic
  solver: {sgd: {lr: 0.1, steps: 1, batch: 16}}
compute: {mode: zero}
schemes: [SCHEME]
stop: {rounds: 3}
"""

AS_IT_IS, TOGETHER = "as it is", "clients are trained as one, one crashes and returns"     # the first case, the last


def check_scheme(name: str, scenario: Scenario | Path | str | None = None, plugins: Sequence[str] = (), *,
                 params: Mapping[str, object] | None = None, pools: Iterable[object] | None = None,
                 quick: bool = False) -> dict[str, Ran]:
    """Properties that every scheme must have, on a small scenario and on what is derived from it: {case: its run}.

    The same log twice, in process, with roles that end between rounds (`stateless`) and kept, in several in-process
    workers that answer in a shuffled order, and in `pools` of 1, 2 and 4 worker processes that sleep at random;
    with a store of trainings, empty and full; the invariants; every byte counted once a hop; no role computes more
    than 1 ms outside `compute`; a round ends within 100,000 activations, or the stop in virtual time ends the run;
    of a scheme that says it is not `deterministic` the same decisions, and the same values with the volatile results of
    a run before. The cases: as it is; everything lost; late; nobody answers; a client crashes, for good and with
    return; clients are trained as one.

    scenario: a Scenario, a file, or the text of one; default: the scheme's `example`, or five clients of digits with a
    linear model, three rounds; for a scheme of peers, five of them.
    params: of the scheme, as a scenario writes them. pools: open ones; default: made and closed here. quick: all of
    this for the first case alone; the last one in process and in two in-process workers, and only for a scheme that
    trains, the others in two alone.
    Raises AssertionError saying what differed, ValueError if the scenario does not run the scheme.
    """
    base = small_scenario(name, scenario, plugins, params)
    raw = next(parameters for scheme, parameters in base.schemes if scheme == name)
    scheme = schemes.find(name, plugins)
    profile = Invented()
    found: dict[str, Ran] = {}
    with contextlib.ExitStack() as stack:
        if pools is None:
            pools = [stack.enter_context(engine.pool_of(n)) for n in (1, 2, 4)]
        pools = list(pools)
        for case, changed, parameters in _cases(base, scheme, raw, found):
            check = Check(name, case, changed, parameters, tuple(plugins), profile)
            if quick and case == TOGETHER and not any(row[0] == R.COMPUTE and row[3] in fused(scheme)
                                                      for one in found.values() for row in one.rows):
                continue                        # of this scheme nobody is trained as one: it is the case before again
            compared = not quick or case in (AS_IT_IS, TOGETHER)
            meter = Metered()
            ran = found[case] = check.run(meter if compared else Shuffled(2, 1))
            if not quick or case == AS_IT_IS:
                _check_further(check, ran, meter, pools)
            check.sound(ran, files=not quick or case == AS_IT_IS)
            if compared:
                check.same(ran, check.run(Shuffled(2, 1)), "for 2 workers in process, shuffled by 1")
    return found


def _check_further(check: Check, ran: Ran, meter: Metered, pools: Sequence[Any]) -> None:
    """The same run in every other way. meter: of the first."""
    meters = [meter, Metered()]
    check.same(ran, check.run(meters[1]), "in a second run")
    check.same(ran, check.run(KeepingTwin()), "with every role kept between its rounds")
    check.storable(ran)
    if not repeats(ran.header):
        check.recallable()
    check.same(ran, check.run(Shuffled(4, 2)), "for 4 workers in process, shuffled by 2")
    for pool in pools:
        check.same(ran, check.run(pool, _delays(pool.workers)), f"for {pool.workers} worker processes")
    check.charged(meters)


def small_scenario(name: str, scenario: Scenario | Path | str | None, plugins: Sequence[str],
                   params: Mapping[str, object] | None) -> Scenario:
    """The scenario to check a scheme on. Raises ValueError if it does not run the scheme, or none fits its roles."""
    if isinstance(scenario, str) and "\n" not in scenario:
        scenario = Path(scenario)
    if isinstance(scenario, Path):
        scenario = load(scenario, plugins=plugins)
    if not isinstance(scenario, Scenario):
        scenario = loads(scenario or _default(schemes.find(name, plugins)), f"conformance of {name}", check=False)
    if params is not None:
        scenario = dataclasses.replace(scenario, schemes=[(name, dict(params))])
    if all(scheme != name for scheme, _ in scenario.schemes):
        raise ValueError(f'the scenario runs {", ".join(s for s, _ in scenario.schemes)}, not "{name}"')
    return scenario


def _default(scheme: Scheme[object]) -> str:
    """The scheme's own example, or a small scenario that has its roles."""
    if scheme.example:
        return scheme.example
    text, roles = SMALL.replace("SCHEME", f"{{name: {scheme.name}}}"), set(scheme.roles)
    if "client" in roles:
        return text
    if roles == {"peer"}:
        return text.replace("{generator: star_mesh, clients: 5}", "{generator: complete, peers: 5}").replace(
            '"client*->server"', '"*->peer1"')
    raise ValueError(f'scheme "{scheme.name}" has the roles {", ".join(sorted(roles))}, for which there is no small '
                     "scenario: give it an example, or pass check_scheme a scenario")


def _cases(base: Scenario, scheme: Scheme[object], raw: dict[str, object], found: Mapping[str, Ran],
           ) -> Iterator[tuple[str, Scenario, PlainDict]]:
    """(what is done to the scheme, the scenario, the scheme's parameters)."""
    yield AS_IT_IS, base, raw
    ran = found[AS_IT_IS]
    half = ran.kernel.end_ns // 2
    names, roles, number = ran.header["names"], ran.header["roles"], ran.header["deciders"][0]
    # the first client; without clients the first node but for the hub
    clients = [n for n, role in enumerate(roles) if role == "client"] or [n for n in range(len(names)) if n != number]
    hub, client = names[number], names[(clients or [number])[0]]
    lost = OutageSpec(1.0, "message")

    def with_rule(*rules: LinkRule) -> Scenario:
        return dataclasses.replace(base, link_rules=[*base.link_rules, *rules])

    yield "everything is lost", with_rule(LinkRule("*", outage=lost)), raw
    yield "nobody answers", with_rule(LinkRule(f"*->{hub}", outage=lost)), raw
    keys = [key for key, f in scenario_keys(scheme.params).items() if f.name in scheme.timeouts]
    if keys:                                    # shorter than the way there and back: every answer is late
        latencies = ran.finished.wiring.network.latencies().values()
        short = f"{max(1, min((latency for latency in latencies if latency), default=MS) * 3 // 2)} ns"
        yield "everything is late", base, {**raw, **dict.fromkeys(keys, short)}
        yield "with a deadline", base, {**raw, **dict.fromkeys(keys, "2 s")}
    waits = [key for key in keys if scenario_keys(scheme.params)[key].default is None]
    if waits:
        yield "until fates are known", base, {key: value for key, value in raw.items() if key not in waits}
    yield "a client crashes", dataclasses.replace(base, faults=[*base.faults, Crash(half, client)]), raw
    back = Crash(half, client, max(1, half // 2))
    returning = dataclasses.replace(base, faults=[*base.faults, back])
    yield "a client crashes and returns", returning, raw
    yield TOGETHER, dataclasses.replace(returning, fuse=FusedTraining(2, 3)), raw


def _delays(workers: int) -> list[float]:
    """Real seconds to sleep before activations, in turn: most none, some long enough to turn the order around."""
    draw = np.random.Generator(np.random.Philox(key=workers))
    return [float(d) for d in np.where(draw.random(37) < 0.8, 0.0, draw.random(37) * 0.002)]


def check_task(spec: Mapping[str, object], clients: int = 2, plugins: Sequence[str] = (), seed: int = 1) -> None:
    """Properties that a learning task must have, for so many clients: its parts fit each other, they are the same when
    they are made again, and clients that are trained as one learn what each learns alone, but for rounding.

    spec: `task` of a scenario. Raises AssertionError saying what differed.
    """
    task, again = (Task(dict(spec), clients, seed, plugins=plugins) for _ in range(2))
    wrong = trial(task)
    if wrong is not None:
        raise AssertionError(f"task.{'.'.join(wrong[0])}: {wrong[1]}")
    assert task.data.content_key == again.data.content_key, "task.data.set: made again, its arrays differ"
    start, few = task.initial_parameters(), range(min(clients, 3))
    for client in few:
        assert np.array_equal(task.indices(client), again.indices(client)), "task.partition: made again, it differs"
    nodes = [task.for_node(f"client{client + 1}", client, lambda: 1) for client in few]
    alone = [node.local_update(start, steps=2)[0] for node in nodes]
    fused: dict[int, np.ndarray] = {}

    def piece(client: int) -> Callable[[], None]:
        node = again.for_node(f"client{client + 1}", client, lambda: 1)
        return lambda: fused.update({client: node.local_update(start, steps=2)[0]})

    again.together.run([piece(client) for client in few])
    for client in few:
        off = float(np.abs(fused[client] - alone[client]).max(initial=0.0))
        assert off <= 1e-3 * max(1.0, float(np.abs(alone[client]).max(initial=0.0))), \
            f"client {client}: trained as one with others, its update differs by {off}: what the model or the " \
            "objective makes of a sample depends on the others of its batch"
