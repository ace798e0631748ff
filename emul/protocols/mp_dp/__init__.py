"""Gradients of a disguised model, summed under noise that many draw together. X. Yang et al., arXiv 2412.11737.

`settings`  what server and clients have agreed on: sizes of noise, the ring, which guarantee follows
`algebra`   secrets, blocks, clipping, noise, recovery: pure functions
`messages`  what travels beside keys
`server`    rounds: disguise, sum, recover, step
`client`    rounds: gradients of the blocks, clipping, noise, masks
`real`      real-valued noise of pairs, and its repair by seeds
`double`    real-valued noise in the pairwise protocol, and its repair by shares
`plain`     rounds of relatives without masks
`account`   what was really spent
"""
