"""Agreement of servers on a function of what clients have sent, whatever that is: PBFT, with signed inputs.

`clients`   a signed input to every server, and the result that f + 1 servers say
`servers`   the driver of a `pbft.Replica`, a round of agreement, what is told
`keys`      Ed25519 keys of all nodes
"""

from emul.protocols.agreement import clients, servers

MESSAGES = (*clients.MESSAGES, *servers.MESSAGES)

__all__ = ["MESSAGES"]
