"""Benchmarks: each `bench_<what>.py` prints its numbers; `python -m benchmarks` runs them all."""
