"""Key agreement, authenticated channels, secret sharing and masks, on top of the package `cryptography`.

The algorithms are real, the secrets are not: schemes draw them from the scenario's seed (emulation only).
"""
