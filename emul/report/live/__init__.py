"""A run to watch while it goes: its journal followed as it grows, a page on loopback, and loggers of other tools."""
