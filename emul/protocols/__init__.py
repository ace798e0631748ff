"""Code that two schemes or more share and that awaits: coroutines of roles and the messages that these send.

A scheme passes to a protocol the functions by which it differs from others; it never inherits. A message type belongs
to the module that sends it and stands in that module's `MESSAGES`. Code that awaits nothing stands in
`emul.primitives`; what awaits and serves one scheme stands in that scheme's file.
"""
