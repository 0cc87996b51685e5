"""The `study` command: do what is missing, show what is known, plan what would be done."""
