"""`python -m benchmarks [--repeats N] [--json FILE]`: every benchmark but the peers; they need an environment apart."""

from __future__ import annotations

from benchmarks.bench_fifo import fifo
from benchmarks.bench_kernel import kernel
from benchmarks.bench_maxmin import maxmin
from benchmarks.bench_memory import memory
from benchmarks.bench_report import report
from benchmarks.bench_rounds import rounds, start_up
from benchmarks.bench_topologies import topologies
from benchmarks.common import main

main(kernel, fifo, maxmin, memory, report, rounds, start_up, topologies, text=__doc__)
