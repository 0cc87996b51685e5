"""Checkpoints: a folder that timm and Hugging Face users recognise, and that proves what it is.

Here are its record, its card, and reading and writing it, all or nothing. What may be done to a network, and how it is
done, lies in `surgery`; the kinds of steps that its history is made of, in `models.history`.
"""

from surgeon.checkpoint.reading import ASSETS, folder_of, from_hub, load, load_checkpoint, open_model
from surgeon.checkpoint.writing import save, save_checkpoint

__all__ = ["ASSETS", "folder_of", "from_hub", "load", "load_checkpoint", "open_model", "save", "save_checkpoint"]
