"""What every method computes, written out in float64 from its formula with plain operations.

Nothing here imports surgeon: a reference that shared code with what it judges would share its mistakes. They are
meant to be read beside the papers, not to be fast. Every norm, insert, mix and metric has one (tests/contract/
test_references.py), and the authors' own outputs confirm them where those are at hand (tests/golden).
"""
