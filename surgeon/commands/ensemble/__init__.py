"""The `ensemble` command: several networks that predict as one."""
