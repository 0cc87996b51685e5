"""Where networks come from: timm, torchvision, the hub, our own small ones, and weights files of all kinds.

What is done to a network lies in `surgery`.
"""
