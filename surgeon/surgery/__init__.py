"""Finding, planning, rewriting and checking normalisation layers.

What a single method does to a layer lies with that method, in `norms` or `inserts`.
"""
