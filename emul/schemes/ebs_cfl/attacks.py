"""The attack of EBS-CFL's server on updates and clusters, found by `emul.registry.attacks`."""

from emul.schemes.ebs_cfl.unmasking import UnmaskUpdates

ATTACKS = {"privacy": {"unmask": UnmaskUpdates}}
