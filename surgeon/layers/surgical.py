"""The layer that takes the place of a BatchNorm: the same parameters under the same names.

How statistics are taken in training is a rule that can be exchanged; inference mixes the
example's own statistics with weight `alpha` into the running ones, which at alpha = 0 is the
original layer. So rewrites of training and of inference meet in one module, and what a fused
layer also did (dropout, activation) is done after it as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

import torch
import torch.fx
import torch.nn.functional as F
from torch import Tensor, nn

from surgeon.core.errors import SurgeonError
from surgeon.layers import native, statistics
from surgeon.layers.branches import Branch, Router
from surgeon.layers.statistics import Statistics

if TYPE_CHECKING:
    from pydantic import BaseModel


class TrainingRule(Protocol):
    """Normalises a training batch and updates the layer's running statistics; a whole rule, any batch."""

    def __call__(self, norm: SurgicalNorm, x: Tensor) -> Tensor: ...


class BatchStatistics:
    """torch's own BatchNorm: the statistics of the whole batch."""

    def __call__(self, norm: SurgicalNorm, x: Tensor) -> Tensor:
        factor = norm.next_average_factor()
        return F.batch_norm(
            x, norm.running_mean, norm.running_var, norm.weight, norm.bias, True, factor, norm.eps
        )  # fmt: skip


class SynchronisedStatistics:
    """torch's own SyncBatchNorm: the statistics of the batches of all processes."""

    def __call__(self, norm: SurgicalNorm, x: Tensor) -> Tensor:
        # The layer carries every attribute that SyncBatchNorm's forward reads.
        return nn.SyncBatchNorm.forward(cast("nn.SyncBatchNorm", norm), x)


class GroupStatistics:
    """GroupNorm, which also keeps running statistics per channel for example weighting."""

    def __call__(self, norm: SurgicalNorm, x: Tensor) -> Tensor:
        with torch.no_grad():
            examples = statistics.example_statistics(statistics.wide(x))
            norm.update_running(statistics.pool(examples, x.new_ones(len(x))))
        return F.group_norm(x, norm.channel_groups, norm.weight, norm.bias, norm.eps)


class SurgicalNorm(nn.Module):
    """A rewritten normalisation layer."""

    weight: Tensor | None
    bias: Tensor | None
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None
    alpha: Tensor
    training_rule: TrainingRule

    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        channel_groups: int | None = None,
        frozen: bool = False,
        identity_alpha: float = 0.0,
        source: str = "BatchNorm2d",
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.channel_groups = num_features if channel_groups is None else channel_groups
        self.frozen = frozen
        self.identity_alpha = identity_alpha
        self.source = source
        self.rewrites: dict[str, BaseModel] = {}
        self.training_rule = BatchStatistics()
        self.whole_rule: TrainingRule | None = None
        self.register_buffer("alpha", torch.full((num_features,), identity_alpha), persistent=False)
        self.constant_alpha: float | None = identity_alpha
        self._alpha_values: float | tuple[float, ...] = identity_alpha
        self.aux: AuxiliaryNorm | None = None
        self.router = Router()

    def set_alpha(self, alpha: float | Sequence[float]) -> None:
        """Set the weight of the example's own statistics: one number, or one per channel."""
        self._alpha_values = tuple(alpha) if isinstance(alpha, Sequence) else float(alpha)
        self.constant_alpha = None if isinstance(alpha, Sequence) else float(alpha)
        self._fill_alpha()
        if (config := self.rewrites.get("example-weighted")) is not None:
            self.rewrites["example-weighted"] = config.model_copy(update={"alpha": self._alpha_values})
        if self.aux is not None:
            self.aux.set_alpha(alpha)

    @property
    def alpha_values(self) -> float | tuple[float, ...]:
        """What alpha was set to: one number, or one per channel."""
        return self._alpha_values

    def compute_with(self, alpha: Tensor) -> None:
        """Infer with a tensor of alphas, one per channel, of which gradients may be wanted; `set_alpha` ends it."""
        self.alpha = alpha
        self.constant_alpha = None
        if self.aux is not None:
            self.aux.compute_with(alpha)

    def split(self, shared_affine: bool) -> None:
        """Add an auxiliary branch that starts as a copy of this layer; one that is there already stays."""
        if self.aux is None:
            self.aux = AuxiliaryNorm.beside(self, shared_affine)

    def _fill_alpha(self) -> None:
        dtype = torch.float32 if self.alpha.dtype.itemsize < 4 else self.alpha.dtype
        values = torch.as_tensor(self._alpha_values, dtype=dtype, device=self.alpha.device)
        self.alpha = values.expand(self.num_features).clone()

    def _apply(self, fn: Any, recurse: bool = True) -> SurgicalNorm:
        """Move and cast as every module; alpha stays exact, also in half precision."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._fill_alpha()
        return self

    @property
    def has_statistics(self) -> bool:
        """Whether there are running statistics that inference can use."""
        if self.running_mean is None:
            return False
        if self.source_has_statistics:
            return True
        return self.num_batches_tracked is not None and bool(self.num_batches_tracked > 0)

    @property
    def source_has_statistics(self) -> bool:
        """GroupNorm brings none: its statistics count only once they have been collected."""
        return self.identity_alpha == 0

    @property
    def track_running_stats(self) -> bool:
        return self.running_mean is not None

    def next_average_factor(self) -> float:
        """Count a training batch and return the weight of its statistics in the running ones."""
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                return 1.0 / float(self.num_batches_tracked)
        return 0.0 if self.momentum is None else self.momentum

    def update_running(self, batch: Statistics) -> None:
        """Move the running moments towards those of a batch (as a mixture of E[x] and E[x^2])."""
        factor = self.next_average_factor()
        if self.running_mean is None or self.running_var is None:
            return
        with torch.no_grad():
            running = Statistics(self.running_mean, self.running_var)
            updated = statistics.mix(running, batch, factor)
            self.running_mean.copy_(updated.mean)
            self.running_var.copy_(updated.var)

    def forward(self, x: Tensor) -> Tensor:
        y = self.normalise(x) if self.aux is None else self._normalise_by_branch(x, self.aux)
        for name in ("drop", "act"):
            if name in self._modules:
                y = getattr(self, name)(y)
        return y

    def normalise(self, x: Tensor) -> Tensor:
        """What the layer does besides dropout and activation, in the main branch."""
        if self.whole_rule is not None:
            return self.whole_rule(self, x)
        return self.training_rule(self, x) if self.training and not self.frozen else self.infer(x)

    def _normalise_by_branch(self, x: Tensor, aux: AuxiliaryNorm) -> Tensor:
        branch = self.router.branch
        if branch is Branch.HALVES:
            half, left_over = divmod(len(x), 2)
            if left_over:
                raise SurgeonError(
                    f"A batch of {len(x)} has no two halves for the branches of a split network.",
                    "Pass as many images for the auxiliary branch as for main: torch.cat([weak, strong]).",
                )
            return torch.cat([self.normalise(x[:half]), aux.normalise(x[half:])])
        return self.normalise(x) if branch is Branch.MAIN else aux.normalise(x)

    def infer(self, x: Tensor) -> Tensor:
        """Normalise with running statistics, into which each example's own are mixed."""
        if self.running_mean is None or self.running_var is None:
            return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)
        alpha = 0.0 if self.training else self.constant_alpha  # a frozen layer trains as it was
        running = Statistics(self.running_mean, self.running_var)
        if alpha == 1 and self.channel_groups < self.num_features:
            return F.group_norm(x, self.channel_groups, self.weight, self.bias, self.eps)
        if alpha == 0:
            return self._infer_running(x, statistics.share_within_groups(running, self.channel_groups))
        return infer_example_weighted(
            x, *running, self.weight, self.bias, self.alpha, self.eps, self.channel_groups
        )  # fmt: skip

    def _infer_running(self, x: Tensor, running: Statistics) -> Tensor:
        if not self.frozen:
            return F.batch_norm(x, *running, self.weight, self.bias, False, 0.0, self.eps)
        # The formula of torchvision's and timm's frozen layers, term by term: equal to the bit.
        weight, bias, mean, var = (
            statistics.per_channel(cast("Tensor", t), x) for t in (self.weight, self.bias, *running)
        )
        scale = weight * (var + self.eps).rsqrt()
        return x * scale + (bias - mean * scale)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """As the original: old files have no batch counter, and a frozen layer has no use for one."""
        counter = f"{prefix}num_batches_tracked"
        if self.num_batches_tracked is None:
            state_dict.pop(counter, None)
        elif f"{prefix}running_mean" in state_dict:  # a file of the unsplit layer says nothing of its second branch
            state_dict.setdefault(counter, torch.zeros_like(self.num_batches_tracked))
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _check_non_zero_input_channels(self, x: Tensor) -> None:
        """Read by SyncBatchNorm's forward."""

    def _check_input_dim(self, x: Tensor) -> None:
        """Read by SyncBatchNorm's forward."""

    def extra_repr(self) -> str:
        rewrites = ", ".join(
            f"{name}({', '.join(f'{k}={v}' for k, v in config)})" for name, config in self.rewrites.items()
        )
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, rewrites=[{rewrites}]"


def surgical_layers(model: nn.Module) -> dict[str, SurgicalNorm]:
    """The rewritten layers of a network by name."""
    return {name: module for name, module in model.named_modules() if type(module) is SurgicalNorm}


class AuxiliaryNorm(SurgicalNorm):
    """The second branch of a split layer: tensors of its own, everything else as in the layer it stands beside."""

    @classmethod
    def beside(cls, main: SurgicalNorm, shared_affine: bool) -> AuxiliaryNorm:
        aux = cls(main.num_features, eps=main.eps, momentum=main.momentum, frozen=main.frozen, source=main.source)
        for name in ("weight", "bias"):
            value = getattr(main, name)
            if isinstance(value, nn.Parameter) or value is None:
                aux.register_parameter(name, value if shared_affine or value is None else _copied(value))
            else:
                aux.register_buffer(name, value if shared_affine else value.clone())
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            value = getattr(main, name)
            aux.register_buffer(name, None if value is None else value.clone())
        aux.follow(main)
        return aux.train(main.training)

    def follow(self, main: SurgicalNorm) -> None:
        """Take statistics as the main branch does."""
        self.training_rule, self.channel_groups = main.training_rule, main.channel_groups
        if isinstance(main.training_rule, SynchronisedStatistics):
            self.process_group = main.process_group
        self._alpha_values, self.constant_alpha = main._alpha_values, main.constant_alpha
        self.alpha = main.alpha.clone()


def _copied(parameter: nn.Parameter) -> nn.Parameter:
    return nn.Parameter(parameter.detach().clone(), requires_grad=parameter.requires_grad)


def check_channels(x: Tensor, channels: int) -> None:
    """Neither the kernels nor broadcasting would notice."""
    if x.dim() < 2 or x.shape[1] != channels:
        raise RuntimeError(f"Expected an input of {channels} channels, got one of shape {tuple(x.shape)}")


@torch.fx.wrap  # feature extractors trace networks symbolically: this stays one step of theirs
def infer_example_weighted(
    x: Tensor,
    mean: Tensor,
    var: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    alpha: Tensor,
    eps: float,
    channel_groups: int,
) -> Tensor:
    """Example weighting by the compiled kernel where it applies, by torch elsewhere."""
    check_channels(x, len(mean))
    if channel_groups == len(mean):
        y = native.example_weighted(x, mean, var, weight, bias, alpha, eps)
        if y is not None:
            return y
    return statistics.example_weighted(x, Statistics(mean, var), weight, bias, alpha, eps, channel_groups)
