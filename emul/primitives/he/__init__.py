"""Homomorphic encryption: sums and products of numbers that nobody who computes them sees.

`ckks`      a pair of keys as one party holds it, for real (TenSEAL, extra `he`) or on plain numbers
`slots`     how vectors lie in the slots of CKKS ciphertexts, and the masks that hide them
`alignment` the rule of PPFPL on ciphertexts: what each of its two servers computes
`paillier`  sums of integers, exact, with a key that two parties share
"""
