"""The `ensemble` command: several networks that predict as one.

Here are its members, the choice among them, the average of their weights and what it all means. How networks are
measured on the same images lies in `measuring`; how statistics are estimated anew, in `surgery`.
"""
