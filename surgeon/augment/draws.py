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
        from surgeon.core.private import beta_draws

        if alpha == 1:
            return self.uniform(count)
        return beta_draws(count, alpha, self.generator, self.source).to(self.device)

    def below(self, bound: Tensor) -> Tensor:
        """One whole number for each bound, from 0 to the bound without it; whole floats, as the bounds are."""
        return (self.uniform(*bound.shape) * bound).floor()

    def boxes(self, lengths: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
        """Start and stop (N, 2) of boxes with these lengths, in rows and columns; whole floats, as the lengths are.

        The middle is anywhere in an image of this size, and the box is cut off at the border.
        """
        from surgeon.layers.native import mixing

        middles = self.uniform(*lengths.shape)
        placed = mixing.placed_boxes(middles, lengths, height, width)
        if placed is not None:
            return placed
        sizes = lengths.new_tensor([height, width])
        start = middles.mul_(sizes).sub_(lengths.div(2, rounding_mode="floor")).floor_()
        stop = (start + lengths).minimum(sizes)
        return start.clamp_(min=0), stop

    def cycle(self, count: int) -> Tensor:
        """For each example another one: all examples in a circle, in random order."""
        import torch

        order = torch.randperm(count, generator=self.generator, device=self.source)
        return torch.empty_like(order).scatter_(0, order, order.roll(1)).to(self.device)

    def bytes(self, *shape: int) -> Tensor:
        """Of eight random bits each, from a generator of our own that is seeded by one draw: torch's is slow."""
        import torch

        from surgeon.layers.native import mixing

        seed = torch.empty((), dtype=torch.int64, device=self.source)
        seed = seed.random_(-(2**63), None, generator=self.generator).to(self.device)
        size = torch.Size(shape).numel()
        count = -(-size // 8)
        words = mixing.random_words(seed, count)
        if words is None:
            words = random_words(seed, count)
        return words.view(torch.uint8)[:size].view(shape)

    def limits(self, probability: Tensor) -> Tensor:
        """Bytes are not above these with the given probabilities, in steps of 1/256; with 1 they never are."""
        import torch

        return (probability * 255).round().to(torch.uint8)


def random_words(seed: Tensor, count: int) -> Tensor:
    """Whole numbers (count,) of 64 random bits: splitmix64, which finds each by its place alone."""
    import torch

    def mixed(words: Tensor, shift: int) -> Tensor:
        shifted: Tensor = (words >> shift) & (2 ** (64 - shift) - 1)  # a shift to the right repeats the sign
        return words ^ shifted

    words: Tensor = torch.arange(1, count + 1, device=seed.device) * _signed(0x9E3779B97F4A7C15) + seed
    words = mixed(words, 30) * _signed(0xBF58476D1CE4E5B9)
    words = mixed(words, 27) * _signed(0x94D049BB133111EB)
    return mixed(words, 31)


def _signed(word: int) -> int:
    """The same 64 bits as a number with a sign, as torch has them."""
    return word - 2**64
