"""Attacks on the privacy of a run that has ended: what the observer has, and what it found, beside the run."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Sequence
from pathlib import Path

from emul.base.errors import Problem, ScenarioError
from emul.base.plain import PlainMapping
from emul.engine.reopening import reopen
from emul.record.attacks import Attacked, read_attack, side_by_side, write_attack
from emul.registry import attacks
from emul.roles.evidence import Evidence, Findings, Needs
from emul.scenario import build_params
from emul.scenario.wording import nearest
from emul.workers.twin import one_thread


def attack(directory: Path, name: str, given: PlainMapping | None = None, plugins: Sequence[str] | None = None,
           label: str | None = None) -> Attacked:
    """Attack the run in `directory`, and leave what was found in it, under `label` (by default `name`).

    given: parameters, as a scenario would write them. Raises ScenarioError for an unknown attack or wrong parameters,
    NotKept if the run has not kept what the attack needs, RecordError.
    """
    opened = reopen(directory, plugins)
    modules = opened.wiring.setups[0].plugins
    known = attacks.known(attacks.PRIVACY, modules)
    if name not in known:
        raise ScenarioError("command line", [Problem("--by", name, "unknown attack" + nearest(name, known))])
    made = build_params(attacks.parameters(known[name]), dict(given or {}), f"parameters of the attack {name}")
    run = made if isinstance(known[name], type) else known[name]
    setup = opened.wiring.setups[0]
    evidence = Evidence(opened.run, opened.task, opened.wiring.scheme, opened.wiring.params, setup.names, setup.roles,
                        opened.shards, setup.seed)
    evidence.require(getattr(known[name], "NEEDS", Needs()))
    with one_thread():
        given_back = run(evidence)
    found = given_back if isinstance(given_back, Findings) else Findings(given_back)
    about = {"attack": name, "parameters": dataclasses.asdict(made), "text": headline(known[name]),
             "digest": opened.run.summary["digest"]}
    write_attack(directory, label or name, found.rows, about,
                 [(one.caption, side_by_side(one.true, one.found)) for one in found.pictures])
    return read_attack(directory, label or name)


def headline(made: object) -> str:
    """The first paragraph of an attack's text, on one line."""
    return " ".join((inspect.getdoc(made) or "").partition("\n\n")[0].split())
