"""Schemes and attacks by name. They are imported when they are asked for: nothing below `emul.testing` imports one.

`schemes` finds a scheme's `SCHEME` in a module or folder of `emul.schemes`, in an installed package or in a plug-in;
`attacks` finds what `ATTACKS` of `emul.attacks`, of a scheme's folder and of plug-ins list.
"""
