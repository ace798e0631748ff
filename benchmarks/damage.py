"""Run directories damaged at random, full disks, and stopped runs, against every command that reads or goes on.

    python -m benchmarks.damage --directories 500 --disk 30 --kills 80 --seed 0

Nothing may come out as a Python traceback, be told as a success where it is none, or be left behind. The damage to
directories stands here, that to disks in `benchmarks.disks`, that to processes in `benchmarks.stops`.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.kills import DONE, cases
from emul import cli, engine, load_run
from emul.base.errors import EmulError
from emul.base.kept import array_bytes, write_array
from emul.record import rundir, salvage
from emul.record.attacks import png, write_attack
from emul.record.load import IncompleteRun
from emul.registry import schemes
from emul.scenario import loads

LONGEST_S = 60                      # of one command, before it counts as hanging
_RECORD = "record: {models: 1, payloads: [Model, Update, Masked]}\n"


@dataclass(frozen=True)
class Original:
    """A run directory before it is damaged, and the digest that it has, or will have once it is gone on with."""

    path: Path
    digest: str


def originals(home: Path, names: Sequence[str]) -> list[Original]:
    """Runs that ended, were interrupted, failed, or were salvaged, of each scheme, with all that a run may leave."""
    found = []
    for name in names:
        scenario = loads(schemes.find(name).example + _RECORD, name)
        (whole,) = engine.run(scenario, workers=0, out=home / "whole", keeping=engine.Keeping(keep=True))
        assert whole.directory is not None
        assert whole.summary is not None
        digest = str(whole.summary["digest"])
        found.append(Original(whole.directory, digest))
        with contextlib.suppress(KeyboardInterrupt):
            engine.run(scenario, workers=0, out=home / "cut", watch=_interrupt)
        cut = home / "cut" / whole.directory.name
        failed, salvaged = (shutil.copytree(cut, home / what / cut.name) for what in ("failed", "salvaged"))
        (failed / rundir.ERROR).write_text("RoleFailed: server (server) failed at 1 s in round 2:\nKeyError: 3\n")
        salvage.write(salvaged)
        found += [Original(path, digest) for path in (cut, failed, salvaged)]
    for original in found:
        _finds(original.path)
    return found


_FOUND = ("artefacts/", "attacks/")     # beside the record: its digest and a replay say nothing of it


def _finds(run: Path) -> None:
    """Leave an array and the results of an attack, as roles and `emul attack` do."""
    write_array(run, "client1", "kept", array_bytes(np.arange(6.0).reshape(2, 3)))
    rows = [{"victim": f"client{i}", "round": i, "error": i / 7} for i in range(3)]
    write_attack(run, "inversion", rows, {"attack": "inversion", "parameters": {"steps": 5}, "text": "Of images."},
                 [("client1", png(np.zeros((4, 4), np.uint8)))])
    if (run / rundir.SEAL).exists():
        rundir.write_json(run / rundir.SEAL, rundir.read_json(run / rundir.SEAL) | {"files": rundir.fingerprints(run)})


def _interrupt(round_: int, now_ns: int, accuracy: float | None) -> None:
    if round_ == 2:
        raise KeyboardInterrupt


# --- damage ---------------------------------------------------------------------------------------------------------

Damage = Callable[[Path, Path, random.Random], None]        # (file, run, draw)


def _truncated(file: Path, run: Path, draw: random.Random) -> None:
    blob = file.read_bytes()
    file.write_bytes(blob[:draw.randrange(len(blob) + 1)])


def _flipped(file: Path, run: Path, draw: random.Random) -> None:
    blob = bytearray(file.read_bytes() or b"\0")
    for _ in range(draw.choice((1, 1, 8))):
        blob[draw.randrange(len(blob))] ^= 1 << draw.randrange(8)
    file.write_bytes(bytes(blob))


def _missing(file: Path, run: Path, draw: random.Random) -> None:
    file.unlink()


def _swapped(file: Path, run: Path, draw: random.Random) -> None:
    other = draw.choice(files(run))
    one, two = file.read_bytes(), other.read_bytes()
    file.write_bytes(two)
    other.write_bytes(one)


def _empty(file: Path, run: Path, draw: random.Random) -> None:
    file.write_bytes(b"")


def _binary(file: Path, run: Path, draw: random.Random) -> None:
    file.write_bytes(draw.randbytes(draw.choice((1, 100, 10_000))))


def _overlong(file: Path, run: Path, draw: random.Random) -> None:
    blob = file.read_bytes()
    file.write_bytes(blob + draw.choice((blob, b"\0" * 2**20, draw.randbytes(50), b"[" * 100_000)))


def _forbidden(file: Path, run: Path, draw: random.Random) -> None:
    """May not be read; root may read everything but a link to itself."""
    if os.geteuid():
        file.chmod(0)
    else:
        file.unlink()
        file.symlink_to(file)


def _folder(file: Path, run: Path, draw: random.Random) -> None:
    file.unlink()
    file.mkdir()


def _pipe(file: Path, run: Path, draw: random.Random) -> None:
    """To open it is to wait for ever."""
    file.unlink()
    os.mkfifo(file)


def _endless(file: Path, run: Path, draw: random.Random) -> None:
    file.unlink()
    file.symlink_to("/dev/zero")


def _huge(file: Path, run: Path, draw: random.Random) -> None:
    """3 GiB of zeros that take no place on the disk, behind what the file had or alone."""
    with file.open("r+b" if draw.random() < 0.5 else "wb") as opened:
        opened.truncate(3 * 2**30)


def _edited(file: Path, run: Path, draw: random.Random) -> None:
    """Text that can be read, with another value in it."""
    text = file.read_bytes()
    old, new = draw.choice(((b"7", b"8"), (b"{", b"["), (b'"', b""), (b"1", b"1e999"), (b"fedavg", b"nobody"),
                            (b": ", b": [[[["), (b"null", b"{}"), (b"0", b"-1")))
    file.write_bytes(text.replace(old, new, draw.choice((1, -1))))


DAMAGES: dict[str, Damage] = {f.__name__[1:]: f for f in (_truncated, _flipped, _missing, _swapped, _empty, _binary,
                                                          _overlong, _forbidden, _folder, _pipe, _endless, _huge,
                                                          _edited)}


def files(run: Path) -> list[Path]:
    """The plain files of a run directory and below, but for those of 3 GiB."""
    return sorted(path for path in run.rglob("*") if _is_plain(path) and path.stat().st_size < 2**30)


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def spoilt(run: Path, draw: random.Random) -> list[str]:
    """Damage one to three files; what was done."""
    done = []
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        if not (there := files(run)):
            break
        file = draw.choice(there)
        if draw.random() < 0.25 and run / rundir.JOURNAL in there:       # what everything rests on
            file = run / rundir.JOURNAL
        name = draw.choice(sorted(DAMAGES))
        DAMAGES[name](file, run, draw)
        done.append(f"{file.relative_to(run)} {name}")
    return done


# --- commands -------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Answer:
    """The outcome of a command: its exit code, or the traceback that came out of it."""

    code: int
    said: str
    untyped: str = ""


def called(*args: str) -> Answer:
    """`emul ARGS` in this process, as the console script calls it."""
    out = io.StringIO()
    before = sys.argv
    sys.argv = ["emul", *args]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), _in_time():
            code = cli._run_command() or 0
    except BaseException as e:
        if isinstance(e, KeyboardInterrupt):
            raise
        return Answer(-1, out.getvalue(), "".join(traceback.format_exception(e)))
    finally:
        sys.argv = before
    said = out.getvalue()
    return Answer(code, said, said if "Traceback" in said else "")


def loaded(run: Path) -> Answer:
    """`emul.load_run` and all that can be asked of what it gives."""
    try:
        with _in_time(), warnings.catch_warnings():
            warnings.simplefilter("ignore", IncompleteRun)
            found = load_run(run)
            found.incomplete            # noqa: B018
            for node, names in found.artefacts.items():
                for name in names:
                    found.artefact(node, name)
            for node in found.models:
                found.model(node)
                for number in found.model_rounds(node):
                    found.model(node, number)
            for label in found.attacks:
                found.attack(label)
            for kind in sorted(set(found.payloads["type"])):
                found.payload(kind)
    except EmulError as e:
        return Answer(2, str(e))
    except (Exception, Overdue) as e:
        return Answer(-1, "", "".join(traceback.format_exception(e)))
    return Answer(0, "")


class Overdue(BaseException):
    """A command hangs. It is no error that a command could take for one of its file, as a TimeoutError is."""


@contextlib.contextmanager
def _in_time() -> Iterator[None]:
    def late(*_: object) -> None:
        raise Overdue(f"it takes more than {LONGEST_S} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(LONGEST_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def asked(run: Path, whole: Path, folder: Path, draw: random.Random) -> Iterator[tuple[str, Answer]]:
    """Every command that reads a run, then those that write into it. Pages take most of the time: not always both."""
    yield "load_run", loaded(run)
    page = str(folder / "page.html")
    if draw.random() < 0.5:
        yield "report", called("report", str(run), "-o", page)
    if draw.random() < 0.1:
        yield "report of two", called("report", str(run), str(whole), "-o", page)
    yield "export", called("export", str(run), "--perfetto", str(folder / "trace.json"))
    yield "store verify", called("store", "verify", str(run / rundir.TRAININGS))
    yield "store summary", called("store", "summary", str(run / rundir.TRAININGS))
    yield "replay", called("replay", str(run), "--workers", "0")
    yield "salvage", called("salvage", str(run))
    yield "resume", called("resume", str(run), "--workers", "0", "--quiet")


def wrong_with(original: Original, run: Path, whole: Path, folder: Path, draw: random.Random) -> Iterator[str]:
    """The mistakes of the commands with a damaged copy of `original`."""
    changed = _changed(original.path, run)
    ended = not (original.path / rundir.INCOMPLETE).exists()
    scenario_kept = rundir.SCENARIO not in changed
    for name, answer in asked(run, whole, folder, draw):
        if answer.untyped:
            yield f"{name}: {answer.untyped}"
        elif answer.code not in (0, 1, 2):
            yield f"{name}: exit code {answer.code}: {answer.said}"
        elif name == "replay" and ended and changed and answer.code == 0:
            yield f"replay: says that it is identical, but {', '.join(changed)} changed"
        elif name == "resume" and not ended and answer.code == 0 and scenario_kept:
            digest = _digest(run)
            if digest != original.digest:
                yield f"resume: the digest is {digest}, not {original.digest}"
    yield from (f"{path.relative_to(run)} was left" for path in run.rglob(".*.tmp"))


def _changed(original: Path, run: Path) -> list[str]:
    """Files of the record that are not those of the run."""
    found = []
    for name in [*rundir.fingerprints(original), rundir.SEAL]:
        if name.startswith(_FOUND):
            continue
        two = [one / name for one in (run, original)]
        if all(map(_is_plain, two)):
            same = len({path.stat().st_size for path in two}) == 1 and two[0].read_bytes() == two[1].read_bytes()
        else:
            same = not (original / name).exists()
        if not same:
            found.append(name)
    return found


def _digest(run: Path) -> str:
    try:
        return str(json.loads((run / rundir.SUMMARY).read_text())["digest"])
    except (OSError, ValueError) as e:
        return str(e)


def directories(count: int, seed: int, names: Sequence[str] = ("fedavg", "secagg"),
                ) -> tuple[Counter[str], list[str]]:
    """`count` damaged run directories of these schemes: (what was done, what was wrong)."""
    draw = random.Random(seed)
    outcomes, wrong = Counter[str](), list[str]()
    with tempfile.TemporaryDirectory(prefix="emul-damage-") as name:
        home = Path(name)
        found = originals(home, names)
        for number in cases(count):
            outcomes[DONE] += 1
            original = draw.choice(found)
            folder = home / str(number)
            folder.mkdir()
            run = shutil.copytree(original.path, folder / original.path.name)
            done = spoilt(run, draw)
            outcomes.update(one.split()[-1] for one in done)
            place = f"directory {number} ({original.path.relative_to(home)}: {', '.join(done)})"
            wrong += [f"{place}: {text}" for text in wrong_with(original, run, found[0].path, folder, draw)]
            shutil.rmtree(folder, ignore_errors=True)
    return outcomes, wrong


def main() -> None:
    from benchmarks import disks, stops

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("directories", 500), ("disk", 30), ("kills", 80), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    parts: dict[str, tuple[Any, int]] = {"directories": (directories, arguments.directories),
                                         "disk cases": (disks.hunt, arguments.disk),
                                         "killed or stopped runs": (stops.hunt, arguments.kills)}
    failed = False
    for title, (hunt, count) in parts.items():
        if not count:
            continue
        outcomes, wrong = hunt(count, arguments.seed)
        failed |= bool(wrong)
        done = outcomes.pop(DONE, 0)
        files = sum(outcomes[name] for name in DAMAGES)
        title += f" ({files} damaged files)" if files else ""
        print(f"{done} of {count} {title}: " + ", ".join(f"{name} {n}" for name, n in sorted(outcomes.items())))
        print("\n".join(wrong) or "nothing was wrong", flush=True)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"at most {most / 1e6:.0f} MB of memory in this process")
    sys.exit(failed)


if __name__ == "__main__":
    main()
