"""A run that has ended, with what it was about: for what is asked of it afterwards."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from emul.engine.wiring import Wiring, wire
from emul.learning import Task, gpus
from emul.record import rundir
from emul.record.journal import RecordError
from emul.record.load import RunTables, load_run
from emul.scenario import load

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
    scenario = load(directory / rundir.SCENARIO, sets=sets, plugins=modules)
    return Reopened(run, wire(scenario, *scenario.schemes[0], plugins=modules))
