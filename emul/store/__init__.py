"""Results of pure computations, kept on disk by what they were computed from.

    with Store(directory) as store:
        key = KeyMaker().key("train", parameters, samples, solver)
        found = store.get(key)                      # bytes, or None
        store.put(key, b"...")

A key covers everything that a result depends on, so an entry is never wrong and never changes: several processes may
share a store, and losing some of it costs time alone.
"""

from emul.store.keys import KEY_BYTES, KeyMaker, Unkeyable
from emul.store.segments import Damage, Segment, SegmentBuffer, SegmentWriter
from emul.store.store import LIMIT_BYTES, Clean, Store, StoreError, StoreSummary, clean, summary, verify

__all__ = ["KEY_BYTES", "LIMIT_BYTES", "Clean", "Damage", "KeyMaker", "Segment", "SegmentBuffer", "SegmentWriter",
           "Store", "StoreError", "StoreSummary", "Unkeyable", "clean", "summary", "verify"]
