"""What PPFPL's roles send and do: messages, keys, the two servers, clients that deviate.

`messages`      the ten messages of a round, those of the iterated maximum, and what a receiver demands of them
`keys`          the key centre, and how every party comes to its keys
`aggregator`    A's rounds: norms, class sums, products, comparison, average
`verifier`      V's answers
`faults`        clients that send what they should not

The equations: `emul.primitives.alignment`; on ciphertexts: `emul.primitives.he.alignment`.
"""
