"""Which setting is best, without retraining, and is the gain real?

Not named after the function `surgeon.sweep`: a package of that name would hide it.
"""
