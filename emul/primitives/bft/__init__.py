"""Byzantine fault tolerant agreement of servers, as pure functions and one pure state machine.

`pbft`      the state machine of one server in one instance of agreement
`signing`   Ed25519
`security`  the probability that no more servers are malicious than the agreement bears
"""
