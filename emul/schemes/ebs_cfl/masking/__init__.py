"""Real-valued masking by orthogonal blocks: VOMCA, SRFC, SKT and what EBS-CFL makes of them.

Li, Bao, Guan, Pan, Huang, Dai, "EBS-CFL: Efficient and Byzantine-robust Secure Clustered Federated Learning", AAAI-25
(arXiv 2506.13612), in a corrected form; all arithmetic is float64. Printed formulas that do not work are named where
they are replaced. None of this keeps updates or clusters secret from the server; `emul.schemes.ebs_cfl.pad` does.

    blocks      what all keys are made of: orthogonal blocks, rows with a given sum, invertible matrices; segments and
                groups (`Shape`); VOMCA, masked encoding and its verification; SKT, from some blocks to others
    srfc        sums of ReLU(x) M over encoded scalars x
    keys        what the key dealer draws once, and what it gives away of it
    rounds      a round: mask rows, uploads, checks, corrections after dropouts; alpha keys, by which the server turns
                an upload into an encoded cosine; what the server does with uploads
"""
