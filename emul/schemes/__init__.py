"""The schemes: a file or a folder each, found by its name (`emul.registry.schemes`).

A scheme ends with `SCHEME`, an `emul.roles.Scheme`, which says what it is; a scheme that is another one with some
parameters fixed with an `emul.roles.Variant`. Schemes of users come by entry points (group `emul.schemes`) or by
`--plugin package.module`.
"""
