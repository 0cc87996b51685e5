"""Studies: many runs as one resumable job, by processes on this machine or by Ray; their scores, seed by seed.

A run is an ordinary `finetune` in a process of its own, and so is an evaluation (`eval`); nothing here trains.
"""
