"""Several networks that predict as one."""
