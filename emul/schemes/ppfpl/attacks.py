"""Attacks on the privacy of PPFPL's clients by its verifier, found by `emul.registry.attacks`."""

from emul.schemes.ppfpl.shared_mask import SharedMask
from emul.schemes.ppfpl.slot_leak import SlotLeak

ATTACKS = {"privacy": {"shared_mask": SharedMask, "slot_leak": SlotLeak}}
