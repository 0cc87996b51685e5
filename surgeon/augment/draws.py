"""The random numbers of one batch: drawn where the generator lives, and moved to where the images are."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Generator, Tensor


def generator_device(generator: Generator | None) -> torch.device:
    """Where a generator draws; without one it is torch's own, on the CPU."""
    import torch

    return torch.device("cpu") if generator is None else generator.device


class Draws:
    """Draws for a batch on `device`: with a generator where that one lives, else with that device's own."""

    def __init__(self, generator: Generator | None, device: torch.device) -> None:
        self.generator = generator
        self.device = device
        self.source = device if generator is None else generator.device

    def uniform(self, *shape: int) -> Tensor:
        """From 0 to 1, without 1."""
        import torch

        return torch.rand(shape, generator=self.generator, device=self.source).to(self.device)

    def normal(self, *shape: int) -> Tensor:
        """Of mean 0 and deviation 1."""
        import torch

        return torch.randn(shape, generator=self.generator, device=self.source).to(self.device)

    def lam(self, count: int, alpha: float) -> Tensor:
        """The own share of each example, from Beta(alpha, alpha)."""
        import torch

        if alpha == 1:
            return self.uniform(count)
        # In double precision, as with a small alpha both parts of a pair are close to nothing.
        both = torch.full((count, 2), alpha, dtype=torch.float64, device=self.source)
        return torch._sample_dirichlet(both, generator=self.generator)[:, 0].float().to(self.device)

    def below(self, bound: Tensor) -> Tensor:
        """One whole number for each bound, from 0 to the bound without it."""
        return (self.uniform(len(bound)) * bound).long()

    def cycle(self, count: int) -> Tensor:
        """For each example another one: all examples in a circle, in random order."""
        import torch

        order = torch.randperm(count, generator=self.generator, device=self.source)
        return torch.empty_like(order).scatter_(0, order, order.roll(1)).to(self.device)

    def chances(self, probability: Tensor, *shape: int) -> Tensor:
        """Truth values (N, *shape), true with the probability of their example, always so at 1.

        Sixteen bits for each are enough, and four times as fast as a random float each.
        """
        import torch

        size = len(probability) * torch.Size(shape).numel()
        words = torch.empty(-(-size // 4), dtype=torch.int64, device=self.source)
        words.random_(-(2**63), None, generator=self.generator)
        limit = (probability * 65535).round().sub(32768).to(torch.int16)
        bits = words.view(torch.int16)[:size].view(len(probability), *shape).to(self.device)
        return bits <= limit.view(-1, *[1] * len(shape))
