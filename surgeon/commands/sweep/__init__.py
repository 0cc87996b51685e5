"""The `sweep` command: which setting is best, without retraining, and is the gain real?"""
