"""Whole deployments against what was predicted of them. On a machine with nothing else running, as root:

    python -m benchmarks.deployment predict DIR                 # some 10 minutes
    python -m benchmarks.deployment measure DIR --minutes 25    # twice: some 50 minutes in all
    python -m benchmarks.deployment compare DIR --write         # some 15 minutes, needs neither

`predict` first runs each scheme over loopback, to find out what its computations take, and then emulates every case;
`measure --predict` does both. Each deployment is a file and takes 10 to 40 seconds: first one of every case, scheme by
scheme over all networks, then the repeats, then cases of which a part of TCP is taken away. Ctrl-C takes all away
again; the same command goes on with what is missing. Commit before: a revision that was changed is marked with +."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks.deployment import namespaces, pages, predictions
from benchmarks.deployment.cases import Case
from benchmarks.deployment.networks import CASES, PARTS
from benchmarks.deployment.predictions import FORMULAS, PREDICTING, Prediction, file_of, known_of
from benchmarks.deployment.runs import Compared, Measured, Usage, compared, kept, measure, write


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """Of the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.deployment", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("predict", "measure", "compare"))
    parser.add_argument("directory", type=Path, help="a file for each deployment, and a folder of predictions")
    parser.add_argument("--only", metavar="TEXT", default="", help="cases whose name contains it")
    parser.add_argument("--predict", action="store_true", help="measure: predict first what has no prediction")
    parser.add_argument("--minutes", type=float, default=float("inf"),
                        help="measure: begin none after so long; the same command goes on with what is missing")
    parser.add_argument("--alone", type=float, default=0.03, metavar="SHARE",
                        help="measure: keep no deployment while other processes, or other machines of the same host, "
                             "took more of the cores' time (default: 0.03)")
    parser.add_argument("--write", action="store_true",
                        help="compare: rewrite tables, figure and data of the page, but for rows of other cases")
    return parser.parse_args(words)


def files(directory: Path, only: str) -> Iterator[tuple[Case, int, Path]]:
    """case, repeat, file: all repeats of the cases, the first of each case before the second of any."""
    chosen = [case for case in [*CASES, *PARTS] if only in case.name]
    for repeat in range(max((case.repeats for case in chosen), default=0)):
        for case in chosen:
            if repeat < case.repeats:
                yield case, repeat, directory / f"{predictions.plain(case.name)}-{repeat + 1}.json"


def predict_all(directory: Path, only: str) -> None:
    """Predict each case that has no prediction yet, by every predictor."""
    (directory / "predictions").mkdir(parents=True, exist_ok=True)
    missing = [(case, [model for model in PREDICTING if not file_of(directory, case.name, model.name).exists()])
               for case in CASES if only in case.name]
    for case, _ in missing:
        for name in FORMULAS:
            found = predictions.of_formula(case, name)
            if found is not None and not file_of(directory, case.name, name).exists():
                found.keep(file_of(directory, case.name, name))
    jobs = [(case, predictions.calibrated(directory, case, ports(case.net.nodes)), models)
            for case, models in missing if models]
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        for several in pool.map(predictions.of_models, *zip(*jobs, strict=True)) if jobs else ():
            for found in several:
                found.keep(file_of(directory, found.case, found.predictor))
            print(f"{several[0].case}: predicted by {len(several)} models", flush=True)


def ports(count: int) -> list[int]:
    """Free ones, on loopback."""
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [s.getsockname()[1] for s in taken]
    for s in taken:
        s.close()
    return found


def measure_all(directory: Path, only: str, minutes: float, alone: float) -> None:
    """Those that have no file yet."""
    directory.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + 60 * minutes
    for case, repeat, file in files(directory, only):
        if file.exists():
            continue
        while time.monotonic() < until:
            with Usage() as before:
                time.sleep(0.5)
            if before.others <= alone:
                break
        else:
            return
        began = time.monotonic()
        found = measure(case, repeat, predictions=known_of(directory, case.name))
        keeps = found.others is not None and found.others <= alone
        if keeps:
            found.keep(file)
        print(f"{case.name} {repeat + 1}{'' if keeps else ': not kept'}: {time.monotonic() - began:.0f} s, "
              f"others took {found.others:.1%}, {until - time.monotonic():.0f} s left", flush=True)


def compare_all(directory: Path, only: str, rewrite: bool) -> None:
    """Those that have been measured."""
    there = [(case, file) for case, _, file in files(directory, only) if file.exists()]
    if not there:
        sys.exit(f"{directory} has no deployment{f' of a case whose name contains {only!r}' if only else ''}")

    def compare(case: Case, file: Path) -> Compared:
        return kept(directory / "compared", file,
                    lambda: compared(case, Measured.read(file), said=lambda text: print(text, flush=True)))

    found = [compare(case, file) for case, file in there]
    first = {case.name: Measured.read(file) for case, file in reversed(there)}
    said = [(Prediction.read(file), first[name]) for name in first
            for file in sorted((directory / "predictions").glob(f"{predictions.plain(name)}--*.json"))]
    folder = pages.HOME / "data" if rewrite else directory
    write(found, folder)
    predictions.write([(one, predictions.standing(one, sound, measured.began, measured.predictions))
                       for (one, sound), measured in said], folder)
    for (one, sound), measured in said:
        standing = predictions.standing(one, sound, measured.began, measured.predictions)
        if standing != predictions.BEFORE:
            print(f"{one.case}: the prediction by {one.predictor} was made or changed after the deployment "
                  f"({standing})", flush=True)
    print(f"\n{pages.tables(folder)}")
    if rewrite:
        pages.draw(folder, pages.FIGURE)
        pages.fill()


def main(words: Sequence[str] | None = None) -> None:
    """The command."""
    chosen = arguments(words)
    if chosen.what == "compare":
        compare_all(chosen.directory, chosen.only, chosen.write)
        return
    if chosen.what == "predict" or chosen.predict:
        predict_all(chosen.directory, chosen.only)
    if chosen.what == "predict":
        return
    reason = namespaces.missing()
    if reason is not None:
        sys.exit(f"not measured: {reason}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))       # so that what was made is taken away
    measure_all(chosen.directory, chosen.only, chosen.minutes, chosen.alone)


if __name__ == "__main__":
    main()
