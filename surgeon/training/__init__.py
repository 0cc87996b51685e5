"""Training one network: recipe, images, objective, loop, schedule, state.

What happens before and after (planning a run, choosing settings, testing) is the `finetune` command.
"""
