"""A network for a training loop that one already has: `emul.Clock`. docs/own-loop.md explains it."""

from emul.loop.clock import Arrival, ClientBlock, Clock, LoopError, LoopRound

__all__ = ["Arrival", "ClientBlock", "Clock", "LoopError", "LoopRound"]
