"""The best settings for a scenario on this machine: the number of workers, and of clients trained as one.

Short runs of the scenario itself, journal in memory, network model and evaluation on. `fuse` changes the last bits of
models and so the digest; it is never chosen silently, but measured here and written by the user.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from emul import engine
from emul.base.errors import Problem, ScenarioError
from emul.base.plain import PlainDict
from emul.kernel import Kernel
from emul.record.journal import MemoryJournal
from emul.scenario import ComputeTime, FusedTraining, Scenario, chosen

SIZES = (8, 16, 32, 64)             # of groups
WORTH = 1.1                         # so many times faster it has to be, to be worth other bits


@dataclass(frozen=True)
class MachineSetting:
    """The values that can be set; fuse None: off."""

    workers: int
    fuse: FusedTraining | None = None

    @property
    def document(self) -> PlainDict | None:
        """`fuse` as a scenario file has it; None: off."""
        return None if self.fuse is None else {"clients": self.fuse.clients, "lanes": self.fuse.lanes}


@dataclass(frozen=True)
class RoundSeconds:
    """Seconds of real time a round, after the first; the time of the evaluations included."""

    setting: MachineSetting
    seconds: float


def settings(clients: int, workers: Sequence[int], sizes: Sequence[int] = SIZES) -> list[MachineSetting]:
    """The settings to try: every number of workers, without `fuse` and with every size that a lane of clients can fill.

    As many lanes as the most workers, so that a run has the same bits with any of these numbers of workers.
    """
    lanes = max(1, *workers)
    longest = -(-clients // lanes)
    fitting = [size for size in sizes if size < longest] + [longest] * (longest <= max(sizes) and longest > 1)
    fused = [FusedTraining(size, lanes) for size in fitting]
    return [MachineSetting(w, fuse) for w in workers for fuse in (None, *fused)]


def measure(scenario: Scenario, scheme: str | None, tried: Sequence[MachineSetting], rounds: int = 4,
            plugins: Sequence[str] = (), tell: Callable[[RoundSeconds], None] = lambda m: None) -> list[RoundSeconds]:
    """Run `rounds` rounds in each setting. Raises RunError, ScenarioError; ValueError for fewer than 2 rounds."""
    if rounds < 2:
        raise ValueError(f"rounds = {rounds}: expected 2 or more, for the first is not counted")
    name, raw = chosen(scenario.schemes, scheme, str(scenario.path or scenario.name))[0]
    compute = scenario.compute if scenario.compute.mode != "measured" else ComputeTime("zero")
    short = replace(scenario, stop=replace(scenario.stop, rounds=rounds, accuracy=None), compute=compute)
    found = []
    for workers in sorted({setting.workers for setting in tried}):
        with engine.pool_of(workers, scenario.workers.timeout_s) as pool:
            for setting in [one for one in tried if one.workers == workers]:
                wiring = engine.wire(replace(short, fuse=setting.fuse), name, raw, max(1, workers), plugins)
                found.append(RoundSeconds(setting, _seconds(wiring, pool)))
                tell(found[-1])
    return found


def choose(found: Sequence[RoundSeconds]) -> RoundSeconds:
    """The fastest; one that is trained as one only if it is `WORTH` it."""
    plain = min((m for m in found if m.setting.fuse is None), key=lambda m: m.seconds)
    fused = min((m for m in found if m.setting.fuse is not None), key=lambda m: m.seconds, default=plain)
    return fused if fused.seconds * WORTH <= plain.seconds else plain


def _seconds(wiring: engine.Wiring, pool: object) -> float:
    first: list[float] = []

    def ended(kernel: Kernel) -> None:
        if not first and kernel.round_ended:
            first.append(time.perf_counter())

    finished = engine.execute(wiring, pool, MemoryJournal(engine.header(wiring)), ended)
    if not first or finished.kernel.entered < 2:
        raise ScenarioError(wiring.scheme.name, [Problem("stop", f"{finished.kernel.entered} rounds", (
            "expected a scenario that gets to its second round"))])
    return (time.perf_counter() - first[0]) / (finished.kernel.entered - 1)
