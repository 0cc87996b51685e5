"""The arithmetic of conditions: numpy and torch on batches, and compiled loops where those are slow."""
