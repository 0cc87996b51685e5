"""Finding, planning, rewriting and checking normalisation layers."""
