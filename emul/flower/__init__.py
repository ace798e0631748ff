"""Unmodified Flower apps over emulated links: what hosts a ServerApp and its ClientApps in roles of emul.

Nothing of Flower is imported before an app runs. `task_of(context)`, for apps that want the scenario's data and model,
gives a ClientApp the learning task of the node that it runs on.
"""

from emul.flower.current import task_of

__all__ = ["task_of"]
