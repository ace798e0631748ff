"""Homomorphic encryption: sums and products of numbers that nobody who computes them sees.

`ckks`      a pair of keys as one party holds it, for real (TenSEAL, extra `he`) or on plain numbers
`paillier`  sums of integers, exact, with a key that two parties share
`threshold` the same with a key that l parties share, of whom any t decrypt
"""
