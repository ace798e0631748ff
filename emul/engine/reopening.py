"""A run that has ended, with what it was about, for what is asked of it afterwards: its model as a module of torch,
and attacks on its privacy, which leave beside the run what they found.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from emul.base.errors import Problem, ScenarioError
from emul.base.files import write_atomically
from emul.base.plain import PlainMapping
from emul.engine.wiring import Wiring, wire
from emul.learning import Task, gpus
from emul.record import rundir
from emul.record.attacks import Attacked, read_attack, side_by_side, write_attack
from emul.record.journal import RecordError
from emul.record.load import RunTables, load_run
from emul.registry import attacks
from emul.roles.evidence import Evidence, Findings, Needs
from emul.scenario import build_params, load
from emul.scenario.wording import nearest
from emul.workers.twin import one_thread

if TYPE_CHECKING:
    from torch import nn


_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reopened:
    """The tables of a run and its wiring."""

    run: RunTables
    wiring: Wiring

    @cached_property
    def task(self) -> Task:
        """The learning task, as the run's workers had it. Raises RecordError: the run had none."""
        setup = self.wiring.setups[0]
        if setup.task is None:
            raise RecordError(f"{self.run.path}: this run has no learning task")
        device = setup.device
        if device != "cpu" and not gpus():
            _log.warning("%s: was made on a GPU, and torch finds none here: computed on the CPU, which rounds "
                         "otherwise", self.run.path)
            device = "cpu"
        return Task(setup.task, setup.holders, setup.seed, device, None, setup.plugins)

    @cached_property
    def shards(self) -> dict[str, int]:
        """Name of a node that holds data -> its number among these."""
        setup = self.wiring.setups[0]
        return {setup.names[first + i]: shard + i for first, shard, count in setup.shards for i in range(count)}


def reopen(directory: Path, plugins: Sequence[str] | None = None, sets: Sequence[str] = ()) -> Reopened:
    """The run in `directory`. plugins: the modules that it was made with. sets: changes of its scenario.

    Raises RecordError: no run that ended, or made with modules that are not given; ScenarioError: its scenario, so
    changed, is none.
    """
    run = load_run(directory)
    modules = rundir.plugins_of(directory, plugins)
    rundir.require_as_sealed(directory / rundir.SCENARIO)
    scenario = load(directory / rundir.SCENARIO, sets=sets, plugins=modules)
    return Reopened(run, wire(scenario, *scenario.schemes[0], plugins=modules))


def whole(directory: Path, node: str | None = None, round_: int | None = None,
          plugins: Sequence[str] | None = None) -> nn.Module:
    """The last model that a node left, or that of a round, on the CPU, as it evaluates, with its frozen parameters,
    which no message and no vector holds. node None: the only one that decides. plugins: the modules that the run was
    made with.

    Raises KeptError: there is none; RecordError: the run has no task, or it is no model of the task's.
    """
    from emul.learning.parameters import ParameterError

    opened = reopen(directory, plugins)
    kept = opened.run.model(node, round_)
    try:
        return opened.task.whole(kept.vector())
    except ParameterError as e:
        raise RecordError(f"{directory}: what {kept.node} left is not one model of the task: {e}") from None


def save(module: nn.Module, file: Path) -> int:
    """Write all its parameters and persistent buffers by their names, as safetensors; how many numbers these are."""
    from safetensors.torch import save_model

    with write_atomically(file) as path:
        save_model(module, str(path))
    return sum(tensor.numel() for tensor in module.state_dict().values())


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
