"""EBS-CFL with l = 199,210 parameters, n = 20 clients, m = 2 clusters, t = 2: CPU seconds of a round, by who computes.

Random updates, two threads of BLAS, training left out. Then whole rounds of the scheme in one process, with a model of
that size on digits: the largest resident size, for n = 20, m = 2 and for n = 100, m = 4, and for the profile pad.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from statistics import median
from typing import Any, TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.common import ROOT, Figure, Options, main
from emul.base.streams import generator
from emul.schemes.ebs_cfl import pad as padded
from emul.schemes.ebs_cfl.design import Masking
from emul.schemes.ebs_cfl.masking import rounds
from emul.schemes.ebs_cfl.masking.blocks import Shape
from emul.schemes.ebs_cfl.masking.keys import draw_keys, server_keys, verification_keys
from emul.schemes.ebs_cfl.server_role import Collected, aggregate, verify

LENGTH = 199_210                        # of 784-200-200-10, and of `wide`
R = TypeVar("R")

SCENARIO = """
emul: 1
name: large
seed: 1
topology: {{generator: star_mesh, clients: {n}, servers: 2}}
links: [{{match: "*", latency: 5 ms}}]
task: {{data: {{set: digits}}, root: {{samples: 80}}, clusters: {{rotate: {angles}}}, partition: {{bootstrap: 20}},
       model: wide, solver: {{sgd: {{lr: 0.1, steps: 1, batch: 16}}}}}}
compute: {{mode: zero}}
schemes: [{{name: ebs_cfl, clusters: {m}, profile: {profile}}}]
stop: {{rounds: 1}}
evaluation: {{every: 5}}
"""


def wide(input_shape: tuple[int, ...], classes: int) -> Any:
    """64-2656-10: 199,210 parameters."""
    from torch import nn

    return nn.Sequential(nn.Flatten(), nn.Linear(64, 2656), nn.ReLU(), nn.Linear(2656, classes))


MODELS = {"wide": wide}                 # for `emul run --plugin benchmarks.bench_ebs_cfl`


def timed(function: Callable[..., R], *args: Any) -> tuple[float, R]:
    begin = time.process_time()
    found = function(*args)
    return time.process_time() - begin, found


def one_round(n: int, m: int, t: int) -> dict[str, float]:
    """CPU seconds of each computation of a round."""
    shape, rng = Shape(n, m, LENGTH, t), generator(1, "bench/ebs_cfl", n, m)
    design = Masking(clusters=m, t=t)
    spent: dict[str, float] = {}
    spent["dealer, keys once"], keys = timed(draw_keys, shape, 1)
    spent["server's keys once"], server = timed(server_keys, keys)
    g0, of = rng.standard_normal((m, LENGTH)), rng.integers(0, m, n)
    Gammas = rounds.gammas(shape, keys.A, rounds.directions(g0), "joint")
    held: dict[tuple[int, int], Any] = {}
    spent["dealer, alpha keys once"] = spent["server, factors once"] = 0.0
    for i, member in enumerate(keys.members):
        took, key = timed(rounds.compact, member, Gammas[0], 0)
        spent["dealer, alpha keys once"] += took
        took, held[i, 0] = timed(rounds.factor, key, Gammas[0])
        spent["server, factors once"] += took
    spent["dealer, mask rows"], rows = timed(rounds.mask_rows, keys, 1, (1, 0), range(n), 1.0)
    uploads: dict[int, np.ndarray] = {}
    spent["dealer, round keys"] = spent["client, encode"] = 0.0
    for i, member in enumerate(keys.members):
        took, ek1 = timed(rounds.round_key, member, rows[i])
        spent["dealer, round keys"] += took
        update = (g0[of[i]] + rng.standard_normal(LENGTH)).astype(np.float32)
        took, uploads[i] = timed(rounds.upload, shape, update, int(of[i]), keys.A, member.P[0], ek1)
        spent["client, encode"] = max(spent["client, encode"], took)
    members = dict(enumerate(keys.members))
    spent["dealer, checks"], e = timed(rounds.expected, members, rows)
    checks = dict(enumerate(e))
    spent["server, verify"], wrong = timed(verify, design, shape, verification_keys(keys), checks, uploads)
    assert not wrong
    got = Collected(uploads, checks)
    spent["server, aggregate"], _ = timed(aggregate, design, shape, server, held, Gammas, got)
    plain, _ = timed(lambda: np.mean(np.stack([shape.flatten(u[:, :t]) for u in uploads.values()]), axis=0))
    return spent | {"a plain mean": plain}


def one_padded_round(n: int, m: int) -> dict[str, float]:
    """The same of the profile pad."""
    shape, rng = Shape(n, m, LENGTH, 2), generator(1, "bench/ebs_cfl", n, m)
    h, seeds = rounds.directions(rng.standard_normal((m, LENGTH))), {i: bytes([i]) * 32 for i in range(n)}
    Y, client = {}, 0.0
    for i in range(n):
        update = (h[i % m] * LENGTH**0.5 + rng.standard_normal(LENGTH)).astype(np.float32)
        took, Y[i] = timed(padded.encode, shape, update, i % m, seeds[i])
        client = max(client, took)
    products, asked = timed(padded.products, Y, h, 1, 1)
    dealer, said = timed(padded.weigh, seeds, asked, h, 1, 1)
    total, (_, W) = timed(padded.aggregate, Y, said, m)
    assert min(W, len(said.w)) > 0.1 * n
    return {"pad: client, encode": client, "pad: server": products + total, "pad: dealer": dealer}


def peak_bytes(n: int, m: int, profile: str) -> tuple[int, float]:
    """(largest resident size, CPU seconds) of one round of the scheme, in a process of its own."""
    code = ("import json, resource, sys\n"
            "from pathlib import Path\n"
            "from emul import engine\nfrom emul.record.journal import MemoryJournal\nfrom emul.scenario import loads\n"
            "from emul.workers.twin import Twin\n"
            "plugins = ['benchmarks.bench_ebs_cfl']\n"
            "scenario = loads(sys.stdin.read(), 'large', plugins=plugins)\n"
            "(name, raw), = scenario.schemes\n"
            "wiring = engine.wire(scenario, name, raw, plugins=plugins)\n"
            "finished = engine.execute(wiring, Twin(), MemoryJournal(engine.header(wiring)))\n"
            "use = resource.getrusage(resource.RUSAGE_SELF)\n"
            # ru_maxrss would begin with what this process holds.
            "peak, = (line for line in Path('/proc/self/status').read_text().splitlines() if 'VmHWM' in line)\n"
            "print(json.dumps([int(peak.split()[1]) * 1024, use.ru_utime + use.ru_stime]))\n")
    text = SCENARIO.format(n=n, m=m, angles=[90 * c for c in range(m)], profile=profile)
    done = subprocess.run([sys.executable, "-c", code], input=text, capture_output=True, text=True, check=False,
                          cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "2"})
    assert done.returncode == 0, done.stderr
    found, seconds = json.loads(done.stdout.splitlines()[-1])
    return found, seconds


def ebs_cfl(options: Options) -> Iterable[Figure]:
    with threadpool_limits(2):
        runs = [one_round(20, 2, 2) | one_padded_round(20, 2) for _ in range(options.repeats)]
    spent = {name: median(run[name] for run in runs) for name in runs[0]}
    server = spent["server, verify"] + spent["server, aggregate"]
    yield Figure("a round's work at the server", server, "s", at_most=3.0)
    yield Figure("a round's work at a client", spent["client, encode"], "s", at_most=0.2)
    for name, seconds in spent.items():
        yield Figure(name, seconds, "s", minor=True)
    for n, m, profile, most in ((20, 2, "masks", None), (20, 2, "pad", None), (100, 4, "masks", 8.0)):
        found, seconds = peak_bytes(n, m, profile)
        yield Figure(f"memory of a round, n = {n}, m = {m}, {profile}", found / 2**30, "GiB", at_most=most,
                     note=f"{seconds:.0f} s of CPU, training included")


if __name__ == "__main__":
    main(ebs_cfl, text=__doc__)
