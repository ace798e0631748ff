"""Real processes: the pool, the transport, the loop of a worker, and its in-process twin."""
