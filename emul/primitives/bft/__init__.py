"""Byzantine fault tolerant agreement of servers, as pure functions and one pure state machine.

`pbft`      the state machine of one server in one instance of agreement
`signing`   Ed25519
`faults`    servers that do not follow it, for `faults: behave`
"""
