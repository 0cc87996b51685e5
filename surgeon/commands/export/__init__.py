"""The `export` command: networks written for programs that do not know surgeon, one file per format.

Here are tracing, folding, the formats and the proof that what was written computes the same. surgeon's own
checkpoints lie in `checkpoint`.
"""
