"""EBS-CFL between nodes: server, key dealer and clients, with the twelve messages of the protocol, and its pad profile.

Read `messages.py`, then `dealer.py`, `client.py` and `server.py`; the algebra is in `emul.primitives.masking`.
"""
