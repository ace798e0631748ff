"""What Fair-SecCoGC and its relatives are made of. Weng et al., arXiv 2507.07565, 2025.

`messages`  what travels
`group`     who takes part: the code and the keys that a group has, and how one is made anew
`keys`      masks that add up to zero: from pairs, from a dealer, from seeds of components
`relay`     a client's set-up, and what the code makes of it
`sums`      the equations of the updates: masked, combined, decoded
`theory`    reliability, transmissions, convergence, and what observers learn
"""

from emul.protocols.seccogc.messages import MESSAGES

__all__ = ["MESSAGES"]
