"""`python -m benchmarks [--repeats N] [--json FILE]`: every benchmark but the peers; they need an environment apart."""

from __future__ import annotations

from benchmarks.bench_kernel import kernel
from benchmarks.bench_memory import memory
from benchmarks.bench_rounds import rounds, start_up
from benchmarks.common import main

main(kernel, memory, rounds, start_up, text=__doc__)
