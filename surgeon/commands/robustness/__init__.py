"""The `robustness` command: how networks do under conditions that they were not trained for, on the same images."""
