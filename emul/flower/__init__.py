"""Unmodified Flower apps over emulated links: what hosts a ServerApp and its ClientApps in roles of emul.

Nothing of Flower is imported before an app runs. `task_of(context)`, for apps that want the scenario's data and model,
gives an app the learning task of the node that it runs on; `report(accuracy=...)` tells what a server app has found.
"""

from emul.flower.current import report, task_of

__all__ = ["report", "task_of"]
