"""Checkpoints: a folder that timm and Hugging Face users recognise, and that proves what it is.

Here are its record, its card, and reading and writing it, all or nothing. What may be done to a network, and how it is
done, lies in `surgery`.
"""

from surgeon.checkpoint.folder import (
    ASSETS,
    folder_of,
    from_hub,
    load,
    load_checkpoint,
    open_model,
    save,
)

__all__ = ["ASSETS", "folder_of", "from_hub", "load", "load_checkpoint", "open_model", "save"]
