"""The `finetune` command: plan a run, train it, choose its settings, test it once, write it.

Here is what happens around training. The training itself (recipe, loop, objective, state) lies in `training`.
"""
