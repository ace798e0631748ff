"""Whole deployments over real TCP, and the same scenarios emulated: `python -m benchmarks.deployment`."""
