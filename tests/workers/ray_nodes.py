"""A small Ray cluster of two nodes as a process of its own, for those that speak to it by Ray's client from outside.

    python ray_nodes.py PORT [ADDRESS]

PORT: of the server for Ray's client; ADDRESS: of the machine, for the nodes. Says "ready", ends its second node
when it reads "node", says "done", and ends with its stdin.
"""

from __future__ import annotations

import sys
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
            assert line == "node\n"
            nodes.remove_node(nodes.list_all_nodes()[-1], allow_graceful=False)
            say("done")
    finally:
        nodes.shutdown()


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
