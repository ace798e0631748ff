"""The number of values in each message of EBS-CFL: the table at the head of `emul/schemes/ebs_cfl/messages.py`."""

from __future__ import annotations

from emul.schemes.ebs_cfl.masking.blocks import Shape


def elements(shape: Shape, n: int, full: bool = False) -> dict[str, int]:
    """{message: numbers in its arrays}, of one message each; of AlphaKeys those of one client and set. n: clients that
    take part. For q = 1; `layer_elements` counts LayerKeys."""
    d, s, N, m, l = shape.d, shape.segments, shape.clients, shape.clusters, shape.length  # noqa: E741
    above = sum(shape.above(0, i) for i in range(N))            # N^2 with two layers
    return {"References": m * l, "ClientKeys": 4 * d * d,
            "ServerKeySet": 14 * d * d * N + 13 * d * d * above + 2 * d * d * N + 6 * d * d * N * N + d * d,
            ("AlphaTensor" if full else "AlphaKeys"): 12 * s * d**3 if full else 6 * s * d + 8 * d * d,
            "VerifyKeys": 3 * d * N, "Participants": n, "RoundKey": 3 * s * d, "Models": m * l, "Upload": 3 * s * d,
            "Checks": n * s, "Correction": s * d}


def layer_elements(shape: Shape, layer: int) -> int:
    """Numbers in the keys from a layer to the next one, tk0 and tk1; layer 0 is in ServerKeySet, each other one in a
    message LayerKeys."""
    return sum(13 * shape.d**2 * len(below) * shape.above(layer, node) for node, below in enumerate(shape.tree[layer]))
