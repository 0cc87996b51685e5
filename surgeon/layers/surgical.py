"""The layer that takes the place of a BatchNorm: the same parameters under the same names.

How statistics are taken in training is a rule that can be exchanged; inference mixes the
example's own statistics with weight `alpha` into the running ones, which at alpha = 0 is the
original layer. So rewrites of training and of inference meet in one module, and what a fused
layer also did (dropout, activation) is done after it as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, TypeGuard, cast

import torch
import torch.fx
import torch.nn.functional as F
from torch import Tensor, nn

from surgeon.core.errors import SurgeonError
from surgeon.core.private import children_of, tensors_of
from surgeon.layers import kernels, native, statistics, symbolic
from surgeon.layers.activations import following
from surgeon.layers.checks import DIMENSIONS, check_alpha, check_channels, check_dimensions
from surgeon.layers.halves import normalise_halves
from surgeon.layers.interface import BatchNormInterface
from surgeon.layers.router import Branch, Router
from surgeon.layers.rules import BatchStatistics, InferenceRule, SynchronisedStatistics, TrainingRule
from surgeon.layers.statistics import Statistics

if TYPE_CHECKING:
    from surgeon.layers.rewriting import NormConfig

_tensors = itemgetter("running_mean", "running_var", "weight", "bias", "alpha")

torch.fx.wrap("check_dimensions")  # where a layer alone is traced symbolically


class SurgicalNorm(BatchNormInterface):
    """A rewritten normalisation layer. Its own eps is `epsilon`: see BatchNormInterface."""

    is_branch: ClassVar[bool] = False
    """Whether it is the auxiliary branch (`aux`) of another layer, not a layer of the network."""

    alpha: Tensor
    training_rule: TrainingRule
    process_group: Any

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
        nn.Module.__init__(self)  # the next class in line may be the one that is replaced
        self.num_features = num_features
        self.epsilon = eps
        self.momentum = momentum
        self.channel_groups = num_features if channel_groups is None else channel_groups
        self.frozen = frozen
        self.track_running_stats = True
        self.identity_alpha = identity_alpha
        self.source = source
        self.input_dimensions = DIMENSIONS.get(source)
        self.rewrites: dict[str, NormConfig] = {}
        self.training_rule = BatchStatistics()
        self.inference_rule: InferenceRule | None = None
        self.whole_rule: TrainingRule | None = None
        self.register_buffer("alpha", torch.full((num_features,), identity_alpha), persistent=False)
        self.constant_alpha: float | None = identity_alpha
        self._alpha_values: float | tuple[float, ...] = identity_alpha
        self.aux: SurgicalNorm | None = None
        self.router = Router()

    def set_alpha(self, alpha: float | Sequence[float]) -> None:
        """Set the weight of the example's own statistics: one number, or one per channel."""
        check_alpha(alpha, self.num_features)
        self._alpha_values = tuple(alpha) if isinstance(alpha, Sequence) else float(alpha)
        self.constant_alpha = None if isinstance(alpha, Sequence) else float(alpha)
        self._fill_alpha()
        for name, option in self.alpha_options.items():
            self.rewrites[name] = self.rewrites[name].model_copy(update={option: self._alpha_values})
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

    def follow(self, main: SurgicalNorm) -> None:
        """As its auxiliary branch, take statistics as the main branch does."""
        self.training_rule, self.channel_groups = main.training_rule, main.channel_groups
        self.inference_rule = main.inference_rule
        self.track_running_stats = main.track_running_stats
        if isinstance(main.training_rule, SynchronisedStatistics):
            self.process_group = main.process_group
        self._alpha_values, self.constant_alpha = main._alpha_values, main.constant_alpha
        self.alpha = main.alpha.clone()

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

    def next_average_factor(self) -> float:
        """Count a training batch and return the weight of its statistics in the running ones."""
        if not self.track_running_stats:
            return 0.0
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                return 1.0 / float(self.num_batches_tracked)
        return 0.0 if self.momentum is None else self.momentum

    def update_running(self, batch: Statistics) -> None:
        """Move the running moments towards those of a batch (as a mixture of E[x] and E[x^2])."""
        factor = self.next_average_factor()
        if self.running_mean is None or self.running_var is None or not self.track_running_stats:
            return
        with torch.no_grad():
            running = Statistics(self.running_mean, self.running_var)
            updated = statistics.mix(running, batch, factor)
            self.running_mean.copy_(updated.mean)
            self.running_var.copy_(updated.var)

    def update_running_by_groups(self, groups: Statistics, bounds: Sequence[tuple[int, int]]) -> None:
        """The same for a batch of groups of examples, from one to another index each, by their (G, C) moments."""
        mean, var = self.running_mean, self.running_var
        if mean is None or var is None or not self.track_running_stats:
            self.next_average_factor()
            return
        factor = self.next_average_factor()
        with torch.no_grad():
            updated: Sequence[Tensor] | Tensor | None = kernels.updated_running(*groups, bounds, mean, var, factor)
            if updated is None:
                sizes = torch.tensor([stop - start for start, stop in bounds], device=groups.mean.device)
                updated = statistics.mix(Statistics(mean, var), statistics.pool(groups, sizes), factor)
            mean.copy_(updated[0])
            var.copy_(updated[1])

    def forward(self, x: Tensor) -> Tensor:
        if (done := self._infer_at_once(x)) is not None:
            return done
        y = symbolic.step(normalise_by_branch, self, x)
        for name in ("drop", "act"):
            if (step := getattr(self, name, None)) is not None:
                y = step(y)
        return y

    def _infer_at_once(self, x: Tensor) -> Tensor | None:
        """Normalisation and activation by one kernel, where it does exactly what the steps of `forward` do."""
        if self.training or torch.compiler.is_compiling() or type(x) is not Tensor:
            return None
        rule = self.inference_rule
        noise: native.Noise | None = getattr(rule, "noise", None)
        if rule is not None and noise is None:
            return None
        if (rule is None and self.constant_alpha == 0) or self.channel_groups != self.num_features:
            return None
        if (
            self.whole_rule is not None
            or children_of(self).get("aux") is not None
            or (activation := following(self)) is None
        ):
            return None
        try:
            mean, var, weight, bias, alpha = _tensors(tensors_of(self))
        except KeyError:  # one of them is computed when it is asked for
            return None
        if mean is None or var is None or alpha is None:
            return None
        check_dimensions(x, self.input_dimensions)
        check_channels(x, self.num_features)
        return kernels.example_weighted(
            x, mean, var, weight, bias, alpha, self.epsilon, noise=noise, activation=activation
        )  # fmt: skip

    def normalise(self, x: Tensor) -> Tensor:
        """What the layer does besides dropout and activation, in the main branch."""
        training = self.training and not self.frozen
        if training and self.source_has_statistics and not x.numel():
            return self._count_empty_batch(x)
        if self.whole_rule is not None:
            return self.whole_rule(self, x)
        return self.training_rule(self, x) if training else self.infer(x)

    def _count_empty_batch(self, x: Tensor) -> Tensor:
        """As BatchNorm: it counts, and moves no statistics; other processes wait for it all the same."""
        synchronised = isinstance(self.training_rule, SynchronisedStatistics)
        return (self.training_rule if synchronised else BatchStatistics())(self, x)

    def _normalise_by_branch(self, x: Tensor, aux: SurgicalNorm) -> Tensor:
        branch = self.router.branch
        if branch is Branch.HALVES:
            half, left_over = divmod(len(x), 2)
            if left_over:
                raise SurgeonError(
                    f"A batch of {len(x)} cannot be halved for the two branches of a split network.",
                    "Pass as many images for the auxiliary branch as for main: torch.cat([weak, strong]).",
                )
            if (done := normalise_halves(self, aux, x)) is not None:
                return done
            weak, strong = x.split_with_sizes([half, half])  # a slice has a gradient of the whole size
            return torch.cat([self.normalise(weak), aux.normalise(strong)])
        return self.normalise(x) if branch is Branch.MAIN else aux.normalise(x)

    def infer(self, x: Tensor) -> Tensor:
        """Normalise with running statistics, into which each example's own are mixed."""
        if self.running_mean is None or self.running_var is None:
            return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.epsilon)
        if self.inference_rule is not None and not self.training:
            return self.inference_rule(self, x)
        alpha = 0.0 if self.training else self.constant_alpha  # a frozen layer trains as it was
        running = Statistics(self.running_mean, self.running_var)
        if alpha == 1 and self.channel_groups < self.num_features:
            return F.group_norm(x, self.channel_groups, self.weight, self.bias, self.epsilon)
        if alpha == 0:
            return self._infer_running(x, running)
        return infer_example_weighted(
            x, *running, self.weight, self.bias, self.alpha, self.epsilon, self.channel_groups
        )  # fmt: skip

    def _infer_running(self, x: Tensor, running: Statistics) -> Tensor:
        if self.channel_groups < self.num_features:
            half = running.mean.dtype.itemsize < 4
            running = statistics.share_within_groups(
                Statistics(statistics.wide(running.mean), statistics.wide(running.var)), self.channel_groups
            )
            if half:  # torch takes no statistics that are wider than the weight
                check_channels(x, self.num_features)
                return statistics.affine(statistics.wide(x), running, self.weight, self.bias, self.epsilon).to(x.dtype)
        if not self.frozen:
            return F.batch_norm(x, *running, self.weight, self.bias, False, 0.0, self.epsilon)
        # The formula of torchvision's and timm's frozen layers, term by term: equal to the bit.
        weight, bias, mean, var = (
            statistics.per_channel(cast("Tensor", t), x) for t in (self.weight, self.bias, *running)
        )
        scale = weight * (var + self.epsilon).rsqrt()
        return x * scale + (bias - mean * scale)

    def _check_non_zero_input_channels(self, x: Tensor) -> None:
        """Read by SyncBatchNorm's forward."""

    def _check_input_dim(self, x: Tensor) -> None:
        """Read by SyncBatchNorm's forward."""

    def extra_repr(self) -> str:
        rewrites = ", ".join(
            f"{name}({', '.join(f'{k}={v}' for k, v in config)})" for name, config in self.rewrites.items()
        )
        return f"{self.num_features}, eps={self.epsilon}, momentum={self.momentum}, rewrites=[{rewrites}]"


def surgical_layers(model: nn.Module) -> dict[str, SurgicalNorm]:
    """The rewritten layers of a network by name."""
    return {name: module for name, module in model.named_modules() if is_whole_layer(module)}


def is_whole_layer(module: nn.Module) -> TypeGuard[SurgicalNorm]:
    """Whether a module is a rewritten layer, and not the second branch of one."""
    return isinstance(module, SurgicalNorm) and not module.is_branch


def normalise_by_branch(norm: SurgicalNorm, x: Tensor) -> Tensor:
    """What the layer does besides dropout and activation, in the branch that is taken."""
    check_dimensions(x, norm.input_dimensions)
    return norm.normalise(x) if norm.aux is None else norm._normalise_by_branch(x, norm.aux)


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
        y = kernels.example_weighted(x, mean, var, weight, bias, alpha, eps)
        if y is not None:
            return y
    return statistics.example_weighted(x, Statistics(mean, var), weight, bias, alpha, eps, channel_groups)
