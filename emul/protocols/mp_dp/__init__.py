"""Gradients of a disguised model, and noise on them. X. Yang et al., arXiv 2412.11737.

`emul.schemes.mp_dp`, its relatives `mp_cdp`, `mp_dp_naive` and `pile`, and attacks on them share this. Masks, and noise
that pairs of clients draw, are of the scheme `mp_dp` alone and lie in its folder.

`settings`  what server and clients have agreed on: sizes of noise, the ring, which guarantee follows
`algebra`   secrets, blocks, clipping, noise, recovery: pure functions
`messages`  the disguised model, and what comes back
`opening`   how the server opens a round
`client`    gradients of the blocks, clipping, noise
`plain`     rounds without masks
`account`   what was really spent
"""
