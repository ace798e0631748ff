"""This tree against a revision: `python -m benchmarks.against REVISION`, the same probes on both, in turn.

Both run the benchmarks of this tree; of the revision only the package `emul` is taken. Where a probe of this tree
imports what the revision does not have, such as `emul.message`, the revision runs its own benchmarks for it, and the
note says so; with `--own` it does for all probes. A ratio above 1 says that this tree is faster (or takes less
memory). Runs are interleaved, so that a change of the machine's load meets both. Where pairs differ much, other
guests of the machine take its time: then the best runs say more.
"""

from __future__ import annotations

import argparse
import compileall
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from benchmarks.common import ROOT, Figure, row

# rounds over links that share their bandwidth, written out for revisions whose benchmarks have no such probe
SHARED = """
import json
from benchmarks.bench_rounds import emul
links = "links=[{match: '*', latency: 20 ms, bandwidth: 20 Mbit/s, sharing: connections}]"
done = emul(100, 0, 21, 2, links)
print(json.dumps({"no-op round, s": done.later_s, "no-op round, CPU of all, s": done.cpu_s}))
"""

# `emul check` of a scenario that every revision reads
CHECK = '''
import json, subprocess, sys, time
from pathlib import Path
Path("small.yaml").write_text("""emul: 1
name: small
seed: 1
topology: {generator: star_mesh, clients: 10}
links: [{match: "*", latency: 20 ms, bandwidth: 20 Mbit/s, outage: {model: bernoulli, p: 0.1, per: round}}]
task: {data: {set: digits}, partition: iid, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 8}}}
compute: {mode: zero}
schemes: [{name: fedavg, deadline: 1 s}]
stop: {rounds: 2}
""")
begin = time.perf_counter()
subprocess.run([sys.executable, "-m", "emul", "check", "small.yaml"], check=True, stdout=subprocess.DEVNULL)
print(json.dumps({"emul check, s": time.perf_counter() - begin}))
'''

IMPORT = """
import json, time
begin = time.perf_counter()
import emul
print(json.dumps({"import emul, s": time.perf_counter() - begin}))
"""

START_UP = """
import json
from benchmarks.bench_rounds import _floats, emul
done = emul(100, 0, 2).run
print(json.dumps({"until the first round has ended, s": _floats(done.output, "first_round_ended")[0] - done.begin}))
"""

# name -> what is run in a fresh interpreter; it prints {figure: value}, smaller is better
PROBES = {
    "parts": "from benchmarks.bench_kernel import parts_probe; parts_probe(1_000)",
    "first_use": "from benchmarks.bench_kernel import first_probe; first_probe(10_000)",
    "table": "from benchmarks.bench_kernel import table_probe; table_probe(1_000)",
    "phold_1": "from benchmarks.bench_kernel import run_probe; run_probe(1_000, 1)",
    "phold_2": "from benchmarks.bench_kernel import run_probe; run_probe(1_000, 2)",
    "phold_2_half": "from benchmarks.bench_kernel import run_probe; run_probe(1_000, 2, 'half')",
    "large_1": "from benchmarks.bench_kernel import run_probe; run_probe(10_000, 1)",
    "large_2": "from benchmarks.bench_kernel import run_probe; run_probe(10_000, 2)",
    "all_to_all_0": "from benchmarks.bench_bulk import against_probe; against_probe(0)",
    "all_to_all_1": "from benchmarks.bench_bulk import against_probe; against_probe(1)",
    "all_to_all_2": "from benchmarks.bench_bulk import against_probe; against_probe(2)",
    "round": "from benchmarks.bench_rounds import against_probe; against_probe()",
    "round_shared": SHARED,
    "training": "from benchmarks.bench_overhead import against_probe; against_probe()",
    "import": IMPORT,
    "check": CHECK,
    "start_up": START_UP,
    "memory": "from benchmarks.bench_memory import against_probe; against_probe()",
}


@contextmanager
def trees(revision: str, own: bool = False, docs: bool = False) -> Iterator[tuple[Path, Path]]:
    """(the revision's `emul` beside the benchmarks of this tree, or its `own`; a copy of this tree as it is now)."""
    packed = subprocess.check_output(["git", "archive", revision, "emul", *(["benchmarks"] if own else []),
                                      *(["docs"] if docs else [])], cwd=ROOT)
    with tempfile.TemporaryDirectory() as folder:
        before, now = Path(folder, "before"), Path(folder, "now")
        with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
            tar.extractall(before, filter="data")
        shutil.copytree(ROOT / "emul", now / "emul", ignore=shutil.ignore_patterns("__pycache__"))
        for tree in (before, now):
            if not (tree / "benchmarks").exists():
                shutil.copytree(ROOT / "benchmarks", tree / "benchmarks", ignore=shutil.ignore_patterns("__pycache__"))
            (tree / "pyproject.toml").write_text("")
            compileall.compile_dir(tree, quiet=1)           # as an installed package is
        yield before, now


def probe(tree: Path, name: str) -> dict[str, float]:
    env = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    output = subprocess.check_output([sys.executable, "-c", PROBES[name]], cwd=tree, env=env, text=True)
    found: dict[str, float] = json.loads(output.splitlines()[-1])
    return found


def importable(tree: Path, name: str) -> bool:
    """True if a tree has all that the benchmarks of a probe import."""
    needed = "\n".join(re.findall(r"^from benchmarks[^;\n]*", PROBES[name], re.MULTILINE))
    return not subprocess.run([sys.executable, "-c", needed], cwd=tree, env={**os.environ, "PYTHONPATH": str(tree)},
                              stderr=subprocess.DEVNULL).returncode


def compare(revision: str, names: Sequence[str], pairs: int, own: bool = False) -> Iterator[Figure]:
    with ExitStack() as stack:
        first, now = stack.enter_context(trees(revision, own))
        with_own: Path | None = None
        for name in names:
            before, runs = first, ""
            if not own and not importable(first, name):
                with_own = with_own or stack.enter_context(trees(revision, own=True))[0]
                before, runs = with_own, "before with its own benchmarks; "
            ratios: dict[str, list[float]] = {}
            values: dict[str, list[tuple[float, float]]] = {}
            for pair in range(pairs):
                order = (before, now) if pair % 2 == 0 else (now, before)
                found = {tree: probe(tree, name) for tree in order}
                for figure, value in found[now].items():
                    ratios.setdefault(figure, []).append(found[before][figure] / value)
                    values.setdefault(figure, []).append((found[before][figure], value))
            for figure, each in ratios.items():
                before_all, now_all = zip(*values[figure], strict=True)
                yield Figure(f"{name}: {figure}", median(each), "x",
                             note=f"{runs}{median(before_all):.4g} before, {median(now_all):.4g} now; "
                                  f"pairs {min(each):.2f} to {max(each):.2f} x; "
                                  f"best {min(before_all):.4g} and {min(now_all):.4g}, "
                                  f"{min(before_all) / min(now_all):.3f} x")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.against",
                                     description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("revision", help="of this repository")
    parser.add_argument("--only", nargs="+", choices=list(PROBES), default=list(PROBES), metavar="NAME",
                        help=f"of {', '.join(PROBES)}")
    parser.add_argument("--pairs", type=int, default=5, help="of runs, each figure's median is said [%(default)s]")
    parser.add_argument("--own", action="store_true", help="the revision runs its own benchmarks")
    chosen = parser.parse_args()
    for figure in compare(chosen.revision, chosen.only, chosen.pairs, chosen.own):
        print(row(figure), flush=True)


if __name__ == "__main__":
    main()
