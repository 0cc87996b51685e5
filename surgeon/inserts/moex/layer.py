"""The unit that exchanges feature moments in training, and says what it did.

    unit = surgeon.exchange_unit(model)
    logits = model(images)
    loss = surgeon.exchanged_loss(criterion, logits, labels, unit.last)

What happened is an attribute of this unit of this network: nothing is global. A compiled network has
one graph break here in training (whether a batch is exchanged is drawn in Python) and none in evaluation.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from surgeon.core.errors import SurgeonError
from surgeon.inserts.moex.exchange import exchange_moments
from surgeon.layers import symbolic
from surgeon.layers.moments import Moments
from surgeon.layers.padding import Padding
from surgeon.layers.recomputation import Repeatable, recomputing
from surgeon.layers.units import TrainingUnit, own_generator, reseed


class Exchange(NamedTuple):
    """What was exchanged: example i took the moments of example permutation[i]; its own label counts `lam`."""

    permutation: Tensor
    lam: float


class MomentExchange(TrainingUnit):
    """MoEx at one site: the identity in evaluation.

    `last` is what the last training forward exchanged, None if that batch was left alone. For the next
    forward only, `permutation` fixes who is whose partner (as when CutMix has chosen), and `mask` of
    shape (N, ...) is true at padding, where `surgeon.padding` says nothing. `generator` draws everything
    else. Activation checkpointing repeats all of it, if the backward pass comes before the next forward.
    """

    def __init__(
        self,
        norm: Moments | str = Moments.PONO,
        *,
        p: float = 0.5,
        lam: float = 0.9,
        groups: int = 4,
        channels_per_group: int | None = None,
        positive_only: bool = False,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        self.norm = Moments(norm)
        self.p = p
        self.lam = lam
        self.groups = groups
        self.channels_per_group = channels_per_group
        self.positive_only = positive_only
        self.seed = seed
        self.generator = own_generator(seed)
        self.permutation: Tensor | None = None
        self.mask: Tensor | None = None
        self.last: Exchange | None = None
        self._given: tuple[Tensor | None, Tensor | None] = (None, None)
        self._draws = Repeatable()
        self._padding = Padding()

    def forward(self, x: Tensor) -> Tensor:
        return symbolic.step(exchange_in_training, self, x)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _exchange(self, x: Tensor) -> Tensor:
        if not recomputing():
            self._given = self.permutation, self.mask
            self.permutation = self.mask = None
        permutation, mask = self._given
        if mask is None:
            mask = self._padding.of(x)
        self.last = None
        with self._draws.drawing(self.generator):
            if torch.rand((), generator=self.generator) >= self.p:
                return x
            if permutation is None:
                permutation = torch.randperm(len(x), generator=self.generator)
        permutation = permutation.to(x.device)
        y = exchange_moments(
            x,
            permutation,
            self.norm,
            groups=self.groups,
            channels_per_group=self.channels_per_group,
            positive_only=self.positive_only,
            mask=mask,
        )
        self.last = Exchange(permutation, self.lam)
        return y

    def reseed(self, *numbers: int) -> None:
        """Draw by these numbers from now on, if the generator is the unit's own."""
        reseed(self.generator, self.seed, *numbers)

    def take_partners(self, permutation: Tensor) -> None:
        """Whom an example is mixed with is also whose moments it takes, so that it has three labels and not four."""
        self.permutation = permutation

    def mix_targets(self, targets: Tensor) -> Tensor:
        """An example that took the moments of another also takes a part of its targets."""
        if self.last is None:
            return targets
        return self.last.lam * targets + (1 - self.last.lam) * targets[self.last.permutation.to(targets.device)]

    def extra_repr(self) -> str:
        return f"{self.norm}, p={self.p}, lam={self.lam}"


def exchange_in_training(unit: MomentExchange, x: Tensor) -> Tensor:
    """What the unit does: nothing in evaluation."""
    return unit._exchange(x) if unit.training else x


def exchange_unit(model: nn.Module) -> MomentExchange:
    """The MoEx unit of a network, which says what each training step exchanged: `unit.last`.

    Args:
        model: A network into which `moex` was inserted.
    """
    units = [module for module in model.modules() if isinstance(module, MomentExchange)]
    if len(units) != 1:
        raise SurgeonError(
            f"The network has {len(units) or 'no'} moex unit{'s' if units else ''}.", "Convert it first: --insert moex."
        )
    return units[0]
