"""What a file may ask for when it says how to build a network: registered names, and arguments that are plain values.

timm.create_model takes a name such as `hf-hub:OWNER/NAME`, which it downloads, and arguments such as
`checkpoint_path`, which it opens. Neither may come from a file that was only to be looked at.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from surgeon.core.errors import SurgeonError, listing
from surgeon.core.reading import shortened
from surgeon.models.catalog import CATALOG
from surgeon.models.names import architecture_names

# Everything with which timm and torchvision vary the size, the depth and the layers of a classification network.
ARGUMENTS = frozenset(
    {
        "num_classes", "in_chans", "img_size", "global_pool", "output_stride",
        "drop_rate", "drop_path_rate", "drop_block_rate", "attn_drop_rate", "proj_drop_rate", "pos_drop_rate",
        "patch_drop_rate",
        "dropout", "attention_dropout", "stochastic_depth_prob",
        "act_layer", "norm_layer", "norm_eps", "norm_momentum", "bn_eps", "bn_momentum", "bn_tf", "pad_type",
        "aa_layer", "se_layer", "attn_layer",
        "layers", "channels", "stem_type", "stem_width", "stem_size", "stem_chs", "replace_stem_pool",
        "block_reduce_first", "avg_down",
        "down_kernel_size", "cardinality", "groups", "base_width", "width_per_group", "width_mult", "depth_mult",
        "width_factor",
        "replace_stride_with_dilation", "zero_init_last", "zero_init_residual", "fix_stem", "fix_init",
        "weight_init", "init_values",
        "ls_init_value", "layer_scale_init_value", "head_init_scale", "num_features", "head_hidden_size",
        "depth", "depths", "dims", "embed_dim", "embed_dims", "num_heads", "mlp_ratio", "mlp_ratios", "qkv_bias",
        "qk_norm", "patch_size", "window_size",
        "kernel_size", "kernel_sizes", "expand_ratio", "conv_mlp", "conv_bias", "use_grn", "growth_rate",
        "block_config", "bn_size",
        "class_token", "no_embed_class", "reg_tokens", "pre_norm", "fc_norm", "final_norm", "pos_embed",
        "dynamic_img_size", "dynamic_img_pad",
        "strict_img_size", "always_partition", "distilled", "distillation", "aux_logits", "aux_loss",
        "transform_input", "init_weights",
        "min_size", "max_size", "num_keypoints",
    }
)  # fmt: skip
LARGEST = 1 << 24
LONGEST_LIST, DEEPEST_LIST = 64, 3
_WORD = re.compile(r"[A-Za-z0-9_]{0,40}")  # neither a path nor an address


def check_source(library: str, architecture: str, arguments: Mapping[str, Any]) -> None:
    """Refuse what is no registered network, or is built with other than plain, known arguments.

    Args:
        library: `timm`, `torchvision` or `surgeon`.
        architecture: The name of the network there.
        arguments: What it is built with.
    """
    if not _is_registered(library, architecture):
        raise SurgeonError(f"{shortened(architecture)} is not an architecture of {library}.")
    check_arguments(architecture, arguments)


def check_arguments(architecture: str, arguments: Mapping[str, Any]) -> None:
    """Refuse arguments of a network that are not known, or whose values are not plain."""
    unknown = [shortened(name) for name in arguments if name not in ARGUMENTS]
    if unknown:
        raise SurgeonError(
            f"The network {architecture!r} is to be built with {listing(unknown)}, which a file may not ask for.",
            "Build it with your own code and pass it to surgeon.convert or surgeon.load.",
        )
    for name, value in arguments.items():
        if not _is_plain(value):
            raise SurgeonError(f"The network {architecture!r} cannot be built with {name}={shortened(value)}.")


def _is_registered(library: str, architecture: str) -> bool:
    if library == "surgeon":
        return architecture in CATALOG
    if library == "torchvision":
        return architecture in architecture_names("torchvision")
    from timm.models import is_model

    # A name with a tag would be looked up again, and is never what a network says of itself.
    return architecture.isidentifier() and bool(is_model(architecture))


def _is_plain(value: Any, depth: int = 0) -> bool:
    if isinstance(value, str):
        return bool(_WORD.fullmatch(value))
    if isinstance(value, list | tuple):
        return depth < DEEPEST_LIST and len(value) <= LONGEST_LIST and all(_is_plain(v, depth + 1) for v in value)
    return value is None or (isinstance(value, bool | int | float) and abs(value) <= LARGEST)
