"""The `sweep` command: which setting is best, without retraining, and is the gain real?

Here is what is asked, confirmed, concluded and stored. How settings compete on the same images lies in `measuring`.
"""
