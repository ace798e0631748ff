"""A small Ray cluster of two nodes as a process of its own, for those that speak to it by Ray's client from outside.

    python ray_nodes.py PORT [ADDRESS]

PORT: of the server for Ray's client; ADDRESS: of the machine, for the nodes. Says "ready", reads what is to end (its
second "node"; the processes that it has for "clients"; "all"), says "done", and ends with its stdin.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

from own_ray import patiently
from ray.cluster_utils import Cluster

NODE: dict[str, Any] = {"num_cpus": 4, "object_store_memory": 80 * 2**20}


def main(port: int, address: str | None = None) -> None:
    if address is not None:
        NODE["node_ip_address"] = address
    nodes = patiently(lambda: Cluster(initialize_head=True, head_node_args={
        **NODE, "include_dashboard": False, "ray_client_server_port": port}))
    try:
        patiently(lambda: nodes.add_node(**NODE))
        say("ready")
        for line in sys.stdin:
            if line == "node\n":
                nodes.remove_node(nodes.list_all_nodes()[-1], allow_graceful=False)
            elif line == "clients\n":
                end_clients()
            elif line == "all\n":
                break
            say("done")
    finally:
        nodes.shutdown()
    say("done")


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def end_clients() -> None:
    """Kill what Ray has begun below this process for each of its clients."""
    import psutil  # Ray brings it

    ended = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):            # of those that have ended meanwhile
            if "--mode=specific-server" in process.cmdline():
                ended.append(process)
    assert ended
    for process in ended:
        process.kill()


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
