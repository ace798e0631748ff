"""emul: a network emulator for federated learning.

Schemes really run in worker processes; a SimPy event calendar decides, in virtual time, when each message arrives or
that it is lost; every byte is counted.
"""

__version__ = "0.1.0"
