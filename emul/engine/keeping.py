"""The trainings that a run keeps, and the other files with which it can be gone on with."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from emul.base.files import read_limited, read_text
from emul.engine.wiring import Wiring
from emul.record.journal import RecordError
from emul.record.rundir import COMMAND, INCOMPLETE, SCENARIO, TRAININGS, RunDirectory, require_as_sealed
from emul.scenario import Scenario
from emul.store import LIMIT_BYTES
from emul.store.segments import SUFFIX

_log = logging.getLogger(__name__)

VARIABLE = "EMUL_STORE"             # of the environment: a store that all runs share, or "none"
_NONE = Path("none")


def trainings_of(run: Path) -> Path:
    """The folder of a run's trainings. Raises RecordError: it is no run, or has not kept them."""
    if not run.is_dir():
        raise RecordError(f"{run}: no directory of a run")
    command = read_command(run) if (run / COMMAND).is_file() else None
    for place in (run / TRAININGS, *([Path(command.store)] if command is not None and command.store else [])):
        if place.is_dir():
            return place
    raise RecordError(f"{run}: it has kept no trainings: run it with --keep-trainings or with --store")


@dataclass(frozen=True)
class Keeping:
    """The store of trainings, and the stores in which earlier ones are looked for.

    store: a folder that runs share; None: each keeps its own, in its directory, until it is complete. keep: for longer.
    what_if: folders of stores that are only read. on: False keeps nothing and looks for nothing.
    """

    store: Path | None = None
    keep: bool = False
    what_if: Sequence[Path] = ()
    limit_bytes: int = LIMIT_BYTES
    on: bool = True

    @classmethod
    def chosen(cls, store: Path | None = None, keep: bool = False, what_if: Sequence[Path] = (),
               default: Path | None = None) -> Keeping:
        """With the store that is said, else that of the environment, else the default; the store "none" is none."""
        named = os.environ.get(VARIABLE)
        store = store or (Path(named) if named else default)
        return cls(None if store == _NONE else store, keep, what_if, on=store != _NONE)

    def applied(self, wiring: Wiring, directory: Path) -> Wiring:
        """The wiring, with workers that know where trainings are kept."""
        if not self.on:
            return wiring
        place = self.store or directory / TRAININGS
        setups = [msgspec.structs.replace(setup, store=str(place.absolute()), store_limit=self.limit_bytes,
                                          stored=[str(folder.absolute()) for folder in self.what_if])
                  for setup in wiring.setups]
        return dataclasses.replace(wiring, setups=setups)

    def completed(self, directory: Path) -> None:
        """The run is whole: its own trainings go."""
        if not self.keep:
            shutil.rmtree(directory / TRAININGS, ignore_errors=True)


@dataclass(frozen=True)
class Command:
    """The command: several schemes, of which this run is one; stands beside the scenario of each run."""

    scenario: str                   # resolved, with all schemes that were to run
    place: int = 0                  # of this run's scheme among them
    plugins: Sequence[str] = ()
    store: str = ""                 # shared; "": its own
    keep: bool = False
    what_if: Sequence[str] = ()
    id: str = field(default_factory=lambda: secrets.token_hex(8))

    def write(self, directory: RunDirectory) -> None:
        directory.write(COMMAND, json.dumps(dataclasses.asdict(self), indent=1) + "\n")

    @property
    def keeping(self) -> Keeping:
        store = Path(self.store) if self.store else None
        if store is not None and not any(store.glob(f"*{SUFFIX}")):     # else a stranger's command writes anywhere
            _log.warning("%s: is no store of trainings: the run keeps its own", store)
            store = None
        return Keeping(store, self.keep, [Path(p) for p in self.what_if])


def read_command(directory: Path) -> Command:
    """The command that the run in `directory` was part of. Raises RecordError."""
    path = directory / COMMAND
    if path.is_file():
        require_as_sealed(path)
    try:
        return msgspec.json.decode(read_limited(path), type=Command)
    except FileNotFoundError:
        raise RecordError(f"{directory}: no run that can be gone on with: {COMMAND} is missing") from None
    except (OSError, ValueError, RecursionError) as e:
        raise RecordError(f"{path}: {e}") from None


def command_of(keeping: Keeping, scenario: str, plugins: Sequence[str]) -> Command:
    """For all runs of one call."""
    return Command(scenario, 0, tuple(plugins), "" if keeping.store is None else str(keeping.store.absolute()),
                   keeping.keep, tuple(str(p.absolute()) for p in keeping.what_if))


def unfinished_like(out: Path, scenario: Scenario) -> list[Path]:
    """Runs in `out` that have not ended, of a scheme of this very scenario, and that no process is running."""
    ours = {dataclasses.replace(scenario, schemes=[entry]).resolved() for entry in scenario.schemes}
    return [path.parent for path in sorted(out.glob(f"*/{INCOMPLETE}"))
            if (path.parent / COMMAND).is_file() and _text(path.parent / SCENARIO) in ours
            and not RunDirectory(path.parent).running]


def _text(file: Path) -> str | None:
    """The text of a file of another run; None: it cannot be read."""
    try:
        return read_text(file)
    except OSError:
        return None


def begun(out: Path, command: Command) -> dict[int, Path]:
    """Place of each scheme of a command that has a run in `out`, whatever has become of it -> its directory."""
    found: dict[int, Path] = {}
    for path in out.glob(f"*/{COMMAND}"):
        try:
            other = read_command(path.parent)
        except RecordError as e:
            _log.warning("not looked at: %s", e)
            continue
        if other.id == command.id:
            found[other.place] = path.parent
    return found
