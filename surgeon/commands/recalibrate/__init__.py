"""The `recalibrate` command: new statistics from images without labels, and what they change.

How statistics are estimated lies in `surgery`; how networks are measured on the same images, in `measuring`.
"""
