"""Jacobians timed side by side: one process per peer, rounds interleaved, answers compared first.

`python -m tfjac bench` runs it on a function of one's own, `python -m benchmarks` of the source
tree on a table of models and against JAX and PyTorch too.
"""
