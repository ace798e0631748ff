"""A Flower app with SecAgg+: its mod on the clients, its workflow on the server."""
