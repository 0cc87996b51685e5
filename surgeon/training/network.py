"""The network to train: a head for the classes, the rewrites, and which of its parameters learn."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from surgeon.core.errors import SurgeonError
from surgeon.core.media import Medium
from surgeon.core.private import BatchNorm
from surgeon.data.check import check_medium
from surgeon.data.hearing import preprocessing_for
from surgeon.data.images import ImageSet
from surgeon.layers.rewriting import NormConfig
from surgeon.layers.running import evaluate_once
from surgeon.layers.surgical import SurgicalNorm, surgical_layers
from surgeon.models.channels import fitted
from surgeon.models.origin import BaseWeights, LoadedModel, ModelSource, Preprocessing
from surgeon.models.sources import build, drawn, example_inputs
from surgeon.problems import CLASSIFICATION, SEGMENTATION, Problem
from surgeon.surgery.apply import apply_plan, current_plan
from surgeon.surgery.branches import mix_branches
from surgeon.surgery.inserting import units_of
from surgeon.surgery.inspect import AFFINE
from surgeon.surgery.proof import plan_surgery, rewrite, state_sha256
from surgeon.surgery.residual import has_residual_addition
from surgeon.surgery.temperature import set_temperature
from surgeon.training.recipe import Recipe, SettledRecipe

NORMS = (SurgicalNorm, BatchNorm, nn.GroupNorm, nn.LayerNorm)


def fit_to_data(loaded: LoadedModel, train: ImageSet, seed: int, problem: Problem = CLASSIFICATION) -> LoadedModel:
    """The network with outputs for the classes of what it is to learn from, and with as many channels.

    A network for images that is to learn from clips gets a first convolution for their spectrograms: its filters summed
    over colours, as timm does it.
    """
    stated = loaded.origin.preprocessing
    if train.medium is Medium.SOUND and (stated is None or stated.medium is Medium.IMAGE):
        loaded = _fit(loaded, {"num_classes": len(train.class_names), "in_chans": 1}, seed, problem)
        heard = preprocessing_for(train)
        return replace(loaded, origin=loaded.origin.model_copy(update={"preprocessing": heard}))
    if stated is not None:
        check_medium(train, stated, loaded.name)
    return fit_to_classes(loaded, len(train.class_names), seed, problem)


def fit_to_classes(loaded: LoadedModel, classes: int, seed: int, problem: Problem = CLASSIFICATION) -> LoadedModel:
    """The network with outputs for so many classes: a new head if it has another number of them.

    A network without trained weights is drawn anew, so that the seed decides about all of it.
    """
    return _fit(loaded, {"num_classes": classes}, seed, problem)


def _fit(loaded: LoadedModel, arguments: dict[str, int], seed: int, problem: Problem) -> LoadedModel:
    source = _source_of(loaded)
    untrained = is_untrained(loaded)
    if arguments == {"num_classes": _outputs(loaded, problem)} and not untrained:
        return loaded
    source = source.model_copy(update={"arguments": {**source.arguments, **arguments}})
    weights = loaded.origin.weights
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        fresh = build(source)
        if untrained:
            weights = BaseWeights(origin=weights.origin, sha256=state_sha256(fresh))
        fresh = apply_plan(fresh, current_plan(loaded.model))
    if not untrained:
        _copy_fitting(loaded.model, fresh)
    origin = loaded.origin.model_copy(update={"source": source, "weights": weights})
    return LoadedModel(loaded.name, fresh, origin)


def _source_of(loaded: LoadedModel) -> ModelSource:
    if loaded.origin.source is None:
        raise SurgeonError(f"Only your code can build {loaded.name!r}, so its head cannot be replaced.")
    return loaded.origin.source


def is_untrained(loaded: LoadedModel) -> bool:
    """Whether the weights are the random ones that surgeon draws; a checkpoint trained from such ones has others."""
    source = _source_of(loaded)
    if loaded.origin.weights.origin != "random":
        return False
    mine = loaded.model.state_dict()
    return all(torch.equal(tensor, mine[name]) for name, tensor in drawn(source).state_dict().items())


def _outputs(loaded: LoadedModel, problem: Problem) -> int:
    inputs = example_inputs(loaded.origin, examples=1) or ()
    with torch.inference_mode():
        answer = loaded.model.eval()(*inputs)
    try:
        return problem.logits(answer, inputs[0]).shape[1]
    except (SurgeonError, IndexError, AttributeError, RuntimeError) as error:
        reason = (
            f" ({error.message.rstrip('.')})"
            if isinstance(error, SurgeonError) and problem is not CLASSIFICATION
            else ""
        )
        raise SurgeonError(
            f"{loaded.name!r} does not return one logit per class, so it cannot be fine-tuned{reason}."
        ) from error


def check_input_size(loaded: LoadedModel) -> None:
    """Refuse a size that the network cannot take: too small for its strides, or not the one it was built for.

    In training it may have auxiliary heads, which need more.
    """
    inputs = example_inputs(loaded.origin, examples=2) or ()
    try:
        with torch.no_grad():
            deepcopy(loaded.model).train()(*inputs)
        evaluate_once(loaded.model, inputs)
    except (RuntimeError, AssertionError, ValueError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")
        raise SurgeonError(f"{loaded.name!r} cannot take this input size: {reason}.", "Choose another one.") from error


@torch.no_grad()
def _copy_fitting(trained: nn.Module, fresh: nn.Module) -> None:
    """Everything but what has another shape: the head, and a first convolution for other channels, which is fitted."""
    mine = fresh.state_dict()
    for name, tensor in trained.state_dict().items():
        if mine[name].shape == tensor.shape:
            mine[name].copy_(tensor)
        elif (summed := fitted(tensor, mine[name].shape)) is not None:
            mine[name].copy_(summed)


@torch.no_grad()
def scale_new_head(before: nn.Module, after: nn.Module, scale: float) -> None:
    """Make what was drawn for other classes smaller, so that its errors do not upset the trained layers.

    Not zero: behind a ReLU, as in SqueezeNet, a head of zeros would never learn.
    """
    shapes = {name: parameter.shape for name, parameter in before.named_parameters()}
    head = head_parameters(after)
    for name, parameter in after.named_parameters():
        if name in shapes and shapes[name] != parameter.shape and parameter in head:
            parameter.mul_(scale)


def apply_rewrites(loaded: LoadedModel, recipe: Recipe) -> None:
    """Apply the recipe's rewrites."""
    if recipe.bn or recipe.insert:
        rewrite(loaded, plan_surgery(loaded, recipe.bn, recipe.layers, recipe.insert))


@torch.no_grad()
def change_one_bit(model: nn.Module, seed: int) -> None:
    """Raise one weight, each equally likely, to the next number that its type has: the smallest possible change."""
    parameters = list(model.parameters())
    place = int(torch.randint(sum(map(torch.numel, parameters)), (), generator=torch.Generator().manual_seed(seed)))
    for parameter in parameters:
        if place < parameter.numel():
            value = parameter.view(-1)[place : place + 1]
            value.copy_(torch.nextafter(value, torch.full_like(value, torch.inf)))
            return
        place -= parameter.numel()


def head_of(model: nn.Module) -> list[nn.Module]:
    """What makes classes of features: all that timm names (some networks have two), or the last layer with weights."""
    if (of_masks := SEGMENTATION.heads(model)) is not None:
        return of_masks
    found = [head for head in _named_by_timm(model) if any(True for _ in head.parameters())]
    if found:
        return found
    layers = [module for module in model.modules() if isinstance(module, nn.Linear | nn.Conv2d)]
    if not layers:
        raise SurgeonError("The network has no linear or convolutional layer that could be its head.")
    return [layers[-1]]


def _named_by_timm(model: nn.Module) -> list[nn.Module]:
    if (get_classifier := getattr(model, "get_classifier", None)) is None:
        return []
    classifier = get_classifier()
    heads = classifier if isinstance(classifier, tuple | list) else [classifier]
    # Of the two heads of VOLO, only the settings of its weights name both.
    names = (getattr(model, "pretrained_cfg", None) or {}).get("classifier") or ()
    modules = dict(model.named_modules())
    named = [modules.get(name) for name in ([names] if isinstance(names, str) else names)]
    return list(dict.fromkeys(head for head in (*heads, *named) if isinstance(head, nn.Module)))


def rewrites_of(model: nn.Module) -> Iterator[tuple[str, NormConfig]]:
    """The options of every rewrite of every layer, with the layer's name."""
    for name, layer in surgical_layers(model).items():
        for config in layer.rewrites.values():
            yield name, config


def branch_augments(model: nn.Module) -> tuple[str, ...]:
    """What each branch's images are augmented with by default, main first; nothing for a network without branches."""
    return next((config.branch_augments for _, config in rewrites_of(model) if config.branch_augments), ())


def check_examples(model: nn.Module, examples: int) -> None:
    """Refuse to train on so many images at once if some layer cannot."""
    for name, config in rewrites_of(model):
        config.check_examples(examples, name)


def memory_format(model: nn.Module) -> torch.memory_format:
    """Channels last is faster, except for rewrites whose kernels take the other order; depthwise layers do not."""
    slow = any(config.slow_channels_last for _, config in rewrites_of(model))
    depthwise = any(isinstance(module, nn.Conv2d) and module.groups > 1 for module in model.modules())
    return torch.contiguous_format if slow and not depthwise else torch.channels_last


def head_parameters(model: nn.Module) -> set[nn.Parameter]:
    return {parameter for head in head_of(model) for parameter in head.parameters()}


def norm_parameters(model: nn.Module) -> set[nn.Parameter]:
    """Gamma and beta of all normalisation layers."""
    return {p for m in model.modules() if isinstance(m, NORMS) for p in m.parameters(recurse=False)}


def choose_what_learns(model: nn.Module, recipe: SettledRecipe) -> None:
    """Let gradients reach only what the recipe trains."""
    head, norms = head_parameters(model), norm_parameters(model)
    for parameter in model.parameters():
        if recipe.only == "norm":
            learns = parameter in norms
        else:
            learns = not ("backbone" in recipe.freeze or ("norm" in recipe.freeze and parameter in norms))
        parameter.requires_grad_(learns or parameter in head)


def train_mode(model: nn.Module, recipe: SettledRecipe) -> None:
    """Training mode, except for what is frozen: there, BatchNorm keeps its statistics and dropout is off."""
    model.train()
    frozen = model.children() if "backbone" in recipe.freeze else ()
    norms = (module for module in model.modules() if isinstance(module, NORMS)) if "norm" in recipe.freeze else ()
    for module in (*frozen, *norms):
        module.eval()
    for head in head_of(model):
        head.train()


def parameter_groups(model: nn.Module, recipe: SettledRecipe) -> list[dict[str, Any]]:
    """Parameters that learn, grouped by how fast and with what decay."""
    head, norms = head_parameters(model), norm_parameters(model)
    layers = layers_of(model)
    top = max(layers.values())
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        scale = recipe.head_lr if parameter in head else recipe.layer_decay ** (top - layers[name])
        decays = recipe.norm_weight_decay if parameter in norms else parameter.dim() > 1
        groups.setdefault((scale, recipe.weight_decay if decays else 0.0), []).append(parameter)
    return [
        {"params": parameters, "lr_scale": scale, "weight_decay": decay}
        for (scale, decay), parameters in groups.items()
    ]


def layers_of(model: nn.Module) -> dict[str, int]:
    """The layer of each parameter, counted from the input.

    Layers are timm's: those it knows of its own networks, and of others, every twelve tensors and the head. What
    surgery has added comes right after what it was added to and belongs to the same layer.
    """
    from timm.models import group_parameters
    from timm.optim import auto_group_layers

    added = _added_by_surgery(model)
    original = [(name, parameter) for name, parameter in model.named_parameters() if parameter not in added]
    if (group_matcher := getattr(model, "group_matcher", None)) is not None:
        described = SimpleNamespace(named_parameters=lambda: iter(original))
        numbers = group_parameters(described, group_matcher(coarse=False), reverse=True)  # type: ignore[arg-type]
    else:
        heads = head_of(model)
        prefixes = tuple(f"{name}." for name, module in model.named_modules() if module in heads)
        described = SimpleNamespace(named_parameters=lambda: original, pretrained_cfg={"classifier": prefixes})
        numbers = auto_group_layers(described)  # type: ignore[no-untyped-call]
    layers: dict[str, int] = {}
    layer = 0
    for name, _ in model.named_parameters():
        layer = layers[name] = numbers.get(name, layer)
    return layers


def _added_by_surgery(model: nn.Module) -> set[nn.Parameter]:
    rewritten = [
        parameter
        for norm in surgical_layers(model).values()
        for name, parameter in norm.named_parameters()
        if name not in AFFINE
    ]
    return {*rewritten, *(parameter for _, unit in units_of(model) for parameter in unit.parameters())}


def has_plain_batch_norm(model: nn.Module) -> bool:
    """Whether there are BatchNorm layers, and nothing has been rewritten or inserted."""
    rewritten = any(True for _ in rewrites_of(model)) or any(True for _ in units_of(model))
    return not rewritten and any(isinstance(module, (SurgicalNorm, BatchNorm)) for module in model.modules())


def has_residual_path(loaded: LoadedModel) -> bool:
    """Whether BatchNorm layers reach the output along residual additions.

    Where the code of no block can be followed, an addition written in one of them is taken for such.
    """
    batch_norms = (SurgicalNorm, BatchNorm)
    return any(isinstance(module, batch_norms) for module in loaded.model.modules()) and has_residual_addition(
        loaded.model
    )


def with_images(loaded: LoadedModel, preprocessing: Preprocessing, class_names: tuple[str, ...] | None) -> None:
    """Note which images the network will have been trained on; temperature and branch mix were chosen by others."""
    set_temperature(loaded.model, None)
    mix_branches(loaded.model, None)
    loaded.origin = loaded.origin.model_copy(update={"preprocessing": preprocessing, "class_names": class_names})


def with_base(loaded: LoadedModel, sha256: str) -> None:
    """Note the hash of the weights that training begins with, unless that of their own base is known."""
    base = loaded.origin.weights
    weights = BaseWeights(origin=base.origin, sha256=base.sha256 or sha256)
    loaded.origin = loaded.origin.model_copy(update={"weights": weights})
