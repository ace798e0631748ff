"""Sums of vectors that stay hidden: double masking over a graph. Bonawitz et al., CCS 2017, figure 4.

    y_i = x_i + PRG(b_i) + sum_{j in N_i & U2} sgn(i, j) PRG(s_ij)      in Z_2^32, sgn(i, j) = +1 if i < j, else -1
    sum_{U3} x = sum_{U3} y - sum_{U3} PRG(b_i) - sum_{j in U2 - U3} sum_{i in N_j & U3} sgn(j, i) PRG(s_ij)

N_i: the neighbours of i in the mask graph. All of it also works in Z_2^64, and with real numbers and noise in place of
the ring and its masks (`emul.schemes.mp_dp.double`). Each stage closes a set, and only
the set counts from then on: U0 selected > U1 sent keys > U2 shared > U3 sent a masked input > U4 signed U3, if the
server is not trusted > U5 revealed shares.

`messages`  what travels
`rules`     what server and clients have agreed on
`server`    its stages: who shares, who is summed, whose masks are taken off
`client`    its stages
`hand`      what a client draws, shares and reveals, and what it refuses
`consent`   signed keys, and survivors that all have seen alike
`quantised` updates as vectors of the ring, and the two roles of a scheme that sums one vector
"""

from emul.protocols.pairwise.messages import MESSAGES, unsent

__all__ = ["MESSAGES", "unsent"]
