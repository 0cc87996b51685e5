"""The layer that rewrites are installed into, and the arithmetic of its statistics."""
