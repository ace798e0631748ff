"""Results of pure computations, kept on disk by what they were computed from.

    with Store(directory) as store:
        key = Keys().key("train", parameters, samples, solver)
        found = store.get(key)                      # bytes, or None
        store.put(key, b"...")

A key covers everything that a result depends on, so an entry is never wrong and never changes: several processes may
share a store, and losing some of it costs time alone.
"""

from emul.store.keys import KEY_BYTES, Keys, Unkeyable
from emul.store.segments import Block, Damage, Segment, SegmentWriter
from emul.store.store import LIMIT_BYTES, Clean, Store, StoreError, Summary, clean, summary, verify

__all__ = ["KEY_BYTES", "LIMIT_BYTES", "Block", "Clean", "Damage", "Keys", "Segment", "SegmentWriter", "Store",
           "StoreError", "Summary", "Unkeyable", "clean", "summary", "verify"]
