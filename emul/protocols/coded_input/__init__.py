"""Sums of vectors that clients code themselves, added up along chains. Jahani-Nezhad et al., arXiv:2203.13060.

    share_s(x_i), s = 1..nu                             any T say nothing of x_i, K + T of them give it
    Groups of nu = K + T + D seats; a client sends share_s to seat s of its own group only. Seat s of group g adds up
    what its group sent, and what seat s of group g - 1 has added up, and passes it on; the last group's seats send
    theirs to the server. Sequence s is share s of the sum of all inputs, and K + T sequences decode it.

No masks. On links that lose messages the seats of a group must agree on whose shares they add up; otherwise the
sequences are of different sums, and what is decoded is wrong without any error. So each seat tells the server whose
shares it holds, and the server answers with A_g, whom every seat of the group holds. The sum is over all A_g.

U0 selected > U1 sent keys, in ascending order: seat by seat, group by group. Who is left over joins a group without a
seat: it sends shares and holds none.

`messages`  what travels
`rules`     what server and clients have agreed on
`seats`     who sits where
`server`    its stages
`client`    a member of a group, with a seat or without
"""

from emul.protocols.coded_input.messages import MESSAGES

__all__ = ["MESSAGES"]
