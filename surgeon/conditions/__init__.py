"""Conditions that networks are judged under: clean, augmented, corrupted or attacked images, one file each."""
