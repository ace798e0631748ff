"""`emul.run`, `check`, `explain` and `check_device`: one scenario."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emul import engine
from emul import scenario as scenarios
from emul.api import costs, html
from emul.api.arguments import Names, listed, loaded, only, plain, require
from emul.base.errors import NetworkError, Problem, ScenarioError
from emul.base.names import by_kind
from emul.base.units import size_bytes
from emul.learning.smoke import Smoke, smoke
from emul.network.reachability import cut_off
from emul.roles.costs import HOW_TO_PRICE
from emul.scenario import Given, Scenario, label_of
from emul.scenario.faults import DropOut
from emul.scenario.wording import nearest
from emul.workers.cluster import cluster

if TYPE_CHECKING:
    import pandas as pd

    from emul.api.runs import Runs


def load_scenario(scenario: Given, *, set: Mapping[str, object] = {}, seed: int | None = None,
                  plugins: Names = ()) -> Scenario:
    """A checked scenario from a file, a mapping or another scenario, with changes. Raises ScenarioError."""
    require(scenario=scenario, set=set, plugins=plugins)
    return loaded(scenario, set, seed, plugins)


def run(scenario: Given, *, schemes: Names | None = None, workers: int | None = None, seed: int | None = None,
        set: Mapping[str, Any] = {}, out: str | os.PathLike[str] | None = None, plugins: Names = (),
        store: str | os.PathLike[str] | None = None, keep_trainings: bool = False, quiet: bool = False,
        on: str | None = None) -> Runs:
    """Run every scheme of a scenario over the same network, as `emul run` does; the digests are the same.

    schemes: only these, by label or name; None: all. workers: processes; 0: none, everything in this one; None: one a
    core. set: changes by path, `{"links[1].outage.p": 0.1}`. out: where the run directories are made, `runs` by
    default. store: a store of trainings that runs share. on: the Ray cluster to have the workers on, such as
    `ray:auto`. Raises ScenarioError before anything runs, and RunFailed, which has the runs, when all have ended and
    one has failed or violates an invariant; TypeError or ValueError, as all functions here do, for an argument that it
    cannot be.
    """
    from emul.api.runs import runs_of

    require(scenario=scenario, schemes=schemes, workers=workers, set=set, out=out, plugins=plugins, store=store,
            keep_trainings=keep_trainings, quiet=quiet, on=on)
    plan = only(loaded(scenario, set, seed, plugins), schemes)
    keeping = engine.Keeping.chosen(None if store is None else Path(store), keep_trainings)
    pool = plain(workers) if on is None else cluster(on, plain(workers))
    results = engine.run(plan, workers=pool, out=Path(out or "runs"), plugins=listed(plugins), quiet=quiet,
                         keeping=keeping)
    return runs_of(results, listed(plugins))


@dataclass(frozen=True, repr=False)
class Checked:
    """A scenario that is sound. name: its file's, or its own. schemes: their labels. notes: what became of the files of
    the data, and what is ignored, such as faults of idle nodes."""

    scenario: Scenario
    name: str
    schemes: list[str]
    warnings: list[str]
    notes: list[str]

    def __str__(self) -> str:
        said = [*(f"warning: {text}" for text in self.warnings), *(f"note: {text}" for text in self.notes)]
        what = f"schemes: {', '.join(self.schemes)}" if self.scenario.task else "a network for a loop (emul.Clock)"
        return "\n".join([*said, f"{self.name}: ok; {what}"])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html.text(str(self))


def check(scenario: Given, *, set: Mapping[str, Any] = {}, seed: int | None = None,
          plugins: Names = ()) -> Checked:
    """Check a scenario and everything it names, without running it. Raises ScenarioError with all that is wrong."""
    require(scenario=scenario, set=set, plugins=plugins)
    return checked(loaded(scenario, set, seed, plugins), scenarios.named(scenario), listed(plugins))


def checked(plan: Scenario, name: str, plugins: Sequence[str] = ()) -> Checked:
    """The findings of `check` on a loaded scenario: that profiles have all costs, and schemes can be wired. name: as it
    is to be called."""
    lacking, uneven = costs.looked_at(plan, plugins)
    if lacking:
        place = {"profile": "compute.file", "model": "compute.mode"}.get(plan.compute.mode, "compute.trace")
        raise ScenarioError(name, [Problem(place, key, f"has no price: {HOW_TO_PRICE[plan.compute.mode]}")
                                   for key in lacking])
    wirings = [engine.wire(plan, name, raw, plugins=plugins) for name, raw in plan.schemes]
    sent = sorted({kind for wiring in wirings for kind in wiring.scheme.sends(wiring.params)})
    unsent = [Problem(f"faults[{i}].stage", f'"{fault.stage}"', "no scheme of this scenario sends it with its "
                      "parameters" + nearest(fault.stage, sent)) for i, fault in enumerate(plan.faults)
              if isinstance(fault, DropOut) and fault.stage not in sent]
    unreached = [Problem("topology", wiring.label, str(error)) for wiring, (scheme, raw) in zip(
        wirings, plan.schemes, strict=True) if (error := _unreached(plan, wiring, scheme, raw, plugins)) is not None]
    if unsent or unreached:
        raise ScenarioError(name, [*unsent, *unreached])
    return Checked(plan, name, [label_of(*entry) for entry in plan.schemes],
                   by_kind([*uneven, *(warning for wiring in wirings for warning in wiring.warnings)]),
                   list(dict.fromkeys([*plan.notes, *(note for wiring in wirings for note in wiring.notes)])))


def _unreached(plan: Scenario, wiring: engine.Wiring, scheme: str, raw: dict[str, object],
               plugins: Sequence[str]) -> NetworkError | None:
    """The error of a first round in which a message finds no link, where some nodes have none and nobody forwards;
    None: all messages have one."""
    if wiring.scheme.guided or wiring.scheme.names_code or wiring.network.topology.forward or cut_off(
            wiring.network, ((u, v) for u in wiring.plan.vertices for v in wiring.plan.vertices if u < v)) is None:
        return None
    from emul.preview import explain as preview  # here, since most scenarios do without its 45 ms

    try:
        preview.traffic(plan, scheme, raw, plugins, joining=False)
    except NetworkError as error:
        return error
    return None


@dataclass(frozen=True, repr=False)
class Explained:
    """The extent of a scenario: `document` has everything as plain values, `frames` the tables as the command
    prints them."""

    document: dict[str, Any]
    notes: list[str] = field(default_factory=list)

    @property
    def frames(self) -> dict[str, pd.DataFrame]:
        """Title -> table: routes, traffic by scheme and type, memory. All cells are text with units."""
        import pandas as pd

        from emul.preview import explain as preview

        return {title: pd.DataFrame(cells[1:], columns=cells[0]) for title, cells in preview.tables(self.document)}

    def __str__(self) -> str:
        parts = [f"{title}\n{frame.to_string(index=False)}" for title, frame in self.frames.items()]
        return "\n\n".join([*parts, *self.notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return "".join(html.table(frame, title) for title, frame in self.frames.items()) + "".join(
            html.text(note) for note in self.notes)


def explain(scenario: Given, *, scheme: str | None = None, size: str = "1 MB", workers: int | None = None,
            set: Mapping[str, object] = {}, seed: int | None = None, plugins: Names = ()) -> Explained:
    """Routes, bottlenecks, losses, the traffic of a round and the memory of each scheme, without running it.

    size: of the message whose time is told. workers: processes that the memory is for. Raises ScenarioError, and
    ValueError for a size that is none.
    """
    from emul.preview import explain as preview

    require(scenario=scenario, scheme=scheme, size=size, workers=workers, set=set, plugins=plugins)
    document = preview.explain(loaded(scenario, set, seed, plugins), size_bytes(size), scheme, listed(plugins),
                               plain(workers))
    return Explained(document, list(preview.notes(document)))


def check_device(device: str = "cuda", scenario: Given | None = None, *, set: Mapping[str, object] = {},
                 seed: int | None = None, plugins: Names = ()) -> Smoke:
    """Train, train clients as one, and evaluate, on the CPU and on a device, as `emul check --device` does.

    device: cpu, cuda or such as cuda:1. scenario: whose task is tried; None: a small one that needs no data. Raises
    DeviceError, which says why there is no such GPU, and ScenarioError.
    """
    require(device=device, set=set, plugins=plugins)
    if scenario is None:
        return tried(device)
    require(scenario=scenario)
    return tried(device, loaded(scenario, set, seed, plugins), listed(plugins))


def tried(device: str, plan: Scenario | None = None, plugins: Sequence[str] = ()) -> Smoke:
    """Of a loaded scenario the task, with its clients and its seed. Raises DeviceError, ScenarioError: it has none."""
    if plan is None:
        return smoke(device)
    setup = engine.wire(plan, *plan.schemes[0], plugins=plugins).setups[0]
    if setup.task is None:
        raise ScenarioError(str(plan.path or plan.name), [Problem("task", "missing", "is needed to try a device with")])
    return smoke(device, setup.task, setup.holders, setup.seed, plugins)
