"""The `finetune` command: plan a run, train it, choose its settings, test it once, write it."""
