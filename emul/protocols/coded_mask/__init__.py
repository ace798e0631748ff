"""Sums of vectors behind masks whose sum is decoded in one step. So et al., MLSys 2022 (LightSecAgg).

    y_i = x_i + z_i                                     mod p, z_i uniform, each client's own
    share_j(z_i), j = 1..n                              any T say nothing of z_i, enough of them give it
    sum_{U2} share_j(z_i) is share j of sum_{U2} z_i    so the answers of U3 decode the sum of the masks
    sum_{U2} x = sum_{U2} y - sum_{U2} z

The code is an argument: `emul.primitives.codes.packed`, `emul.schemes.fastsecagg.product`. Each stage closes a set, and
only the set counts from then on: U0 selected > Keys sent keys > U1 shared > U2 sent a masked input > U3 answered.
The masks do not depend on the updates, so clients may train while the shares travel.

`messages`  what travels
`rules`     what server and clients have agreed on
`server`    its stages
`client`    its stages, and what it refuses
"""

from emul.protocols.coded_mask.messages import MESSAGES

__all__ = ["MESSAGES"]
