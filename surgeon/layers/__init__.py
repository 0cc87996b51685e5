"""The layer that rewrites are installed into, the arithmetic of its statistics, and the compiled kernels.

A layer that belongs to one method lies with that method, in `norms` or `inserts`.
"""
