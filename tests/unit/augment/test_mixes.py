"""Every mix of the registry, so that a new one is tested by being there."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from surgeon.augment.base import Kind, augments
from surgeon.augment.cutout import usual_size
from surgeon.augment.draws import Draws, random_words
from surgeon.augment.mixing import Mix, Pairs, ShareConfig, soft
from surgeon.augment.pipeline import mixer
from surgeon.core.errors import SurgeonError
from surgeon.inserts.moex.loss import CutMix, exchanged_loss
from surgeon.layers import native
from surgeon.layers.native import mixing as kernels
from tests.helpers import randn
from tests.reference.mixes import MIXES as REFERENCES


def operation(name: str, **options: Any) -> Mix:
    augment = augments[name]
    return augment.build(augment.configure(options), None)


MIXES = [name for name in augments if augments[name].kind is Kind.MIX]
SHARED = [name for name in MIXES if issubclass(augments[name].config, ShareConfig)]
SELECTING = [name for name in MIXES if not operation(name).averages]
CENTRED = ["bc-plus", "vh-bc-plus"]
"""Take away each image's mean."""
ELSEWHERE = ["random-square", "random-row-interval", "random-column-interval"]
"""Take from another place in the partner."""
MEAN_SHARE = {"cutmix": 1 / 2 + 1 / 5 - 1 / 48, "random-square": 1 - (7 / 16) ** 2}
"""Where what is cut off at the border goes to the own share; one half for all others."""
CLASSES = 5
shapes = st.tuples(st.integers(2, 7), st.sampled_from([1, 3]), st.integers(3, 12), st.integers(3, 12))
seeds = st.integers(0, 10_000)
layouts = st.sampled_from([torch.contiguous_format, torch.channels_last])
each_mix = pytest.mark.parametrize("name", MIXES)


def without_kernels(patch: pytest.MonkeyPatch) -> None:
    computing = ("evenly", "lines", "waves", "concats", "noisily", "boxes", "chances")
    for name in (*computing, "placed_boxes", "random_words"):
        patch.setattr(kernels, name, lambda *_: None)


@pytest.fixture(params=["kernel", "torch"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to compute."""
    if request.param == "torch":
        without_kernels(monkeypatch)
    elif not native.available():
        pytest.skip("the kernels are not built")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def targets(count: int) -> Tensor:
    return soft(torch.arange(count) % CLASSES, CLASSES)


def numbered(shape: tuple[int, ...], **options: Any) -> Tensor:
    """Image i is filled with i."""
    return torch.arange(shape[0], **options).view(-1, 1, 1, 1).expand(shape).contiguous()


class Fixed(Draws):
    """Draws every share as 1."""

    def lam(self, count: int, alpha: float) -> Tensor:  # noqa: ARG002
        return torch.ones(count)


@each_mix
@settings(deadline=None, max_examples=10)
@given(shape=shapes, seed=seeds)
def test_targets_sum_to_one_and_nothing_is_changed_in_place(name: str, shape: tuple[int, ...], seed: int) -> None:
    images, labels = randn(*shape, seed=seed), targets(shape[0])
    before = images.clone(), labels.clone()
    made, mixed = operation(name)(images, labels, generator(seed))
    assert made.shape == images.shape
    assert made.isfinite().all()
    assert mixed.min() >= 0
    torch.testing.assert_close(mixed.sum(1), torch.ones(shape[0]))
    assert torch.equal(images, before[0])
    assert torch.equal(labels, before[1])
    assert made.data_ptr() != images.data_ptr()


@pytest.mark.usefixtures("kernel")
@each_mix
@pytest.mark.parametrize("shape", [(6, 3, 8, 8), (5, 2, 7, 10)], ids=str)
def test_every_pixel_and_share_is_explained_by_the_reference(name: str, shape: tuple[int, ...]) -> None:
    for seed in range(3):
        images = randn(*shape, seed=seed)
        made, partner, kept = operation(name).mixed(images, generator(seed))
        for own, other, result, share in zip(images, images[partner], made, kept.tolist(), strict=True):
            explained = REFERENCES[name](own.double(), other.double(), result.double())
            assert explained is not None, f"no {name} makes this image"
            assert explained == pytest.approx(share, abs=1e-4)


@pytest.mark.parametrize("name", REFERENCES)
def test_the_reference_refuses_what_is_no_such_mix(name: str) -> None:
    own, other, made = randn(3, 3, 8, 8, dtype=torch.float64)
    assert REFERENCES[name](own, other, made) is None


@each_mix
@settings(deadline=None, max_examples=10)
@given(shape=shapes, seed=seeds)
def test_the_label_follows_the_share_in_the_image(name: str, shape: tuple[int, ...], seed: int) -> None:
    if name in CENTRED:
        pytest.skip("an image of one colour is 0 without its mean")
    made, partner, kept = operation(name).mixed(numbered(shape, dtype=torch.float32), generator(seed))
    own = torch.arange(shape[0]).float()
    expected = kept * own + (1 - kept) * own[partner]
    torch.testing.assert_close(made.mean((1, 2, 3)), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", SELECTING)
@settings(deadline=None, max_examples=10)
@given(shape=shapes, seed=seeds, dtype=st.sampled_from([torch.float32, torch.uint8, torch.float16]))
def test_choosing_among_pixels_is_exact(name: str, shape: tuple[int, ...], seed: int, dtype: torch.dtype) -> None:
    made, partner, kept = operation(name).mixed(numbered(shape, dtype=dtype), generator(seed))
    assert made.dtype is dtype
    own, other = (made == source.view(-1, 1, 1, 1) for source in (torch.arange(shape[0]), partner))
    assert (own | other).all()
    torch.testing.assert_close(own.float().mean((1, 2, 3)), kept)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("name", sorted(set(SELECTING) - set(ELSEWHERE)))
def test_pixels_stay_where_they_were(name: str) -> None:
    images = randn(6, 3, 9, 14)
    made, partner, _ = operation(name).mixed(images, generator())
    assert ((made == images) | (made == images[partner])).all()


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("name", ELSEWHERE)
def test_pixels_from_elsewhere_are_a_block_of_the_partner(name: str) -> None:
    places = torch.arange(9 * 14).view(9, 14)
    images = (torch.arange(16).view(-1, 1, 1, 1) * 1000 + places).expand(-1, 3, -1, -1).float()
    made, partner, _ = operation(name).mixed(images.contiguous(), generator())
    moved = 0
    for image, own, other in zip(made, images, images[partner], strict=True):
        taken = (image != own).any(0)
        if taken.any():
            rows, columns = taken.any(1).nonzero()[:, 0], taken.any(0).nonzero()[:, 0]
            block = image[0, rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
            place = int(block[0, 0] - other[0, 0, 0])
            top, left = place // 14, place % 14
            assert torch.equal(block, other[0, top : top + len(rows), left : left + len(columns)])
            moved += (top, left) != (int(rows[0]), int(columns[0]))
    assert moved > 3


@pytest.mark.parametrize("name", SHARED)
def test_a_share_of_one_is_the_image_itself(name: str) -> None:
    images = randn(5, 3, 8, 6)
    images -= images.mean((1, 2, 3), keepdim=True)
    draws = Fixed(generator(), images.device)
    mix = operation(name, **({"noise": 0} if name == "noisy-mixup" else {}))
    made, kept = mix.rule(Pairs(images, draws.cycle(5), draws), mix.config)
    torch.testing.assert_close(made, images)
    torch.testing.assert_close(kept, torch.ones(5))


@each_mix
def test_a_seed_decides_everything(name: str) -> None:
    images, labels = randn(6, 3, 9, 7), targets(6)
    mix = operation(name)
    first, again, other = (mix(images, labels, generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[0], other[0])
    torch.manual_seed(3)
    free = mix(images, labels, None)
    assert not torch.equal(free[0], mix(images, labels, None)[0])
    torch.manual_seed(3)
    assert torch.equal(free[0], mix(images, labels, None)[0])


@each_mix
@pytest.mark.parametrize("alpha", [1.0, 0.3])
def test_the_mean_share(name: str, alpha: float) -> None:
    options = {"alpha": alpha} if name in SHARED else {}
    if alpha != 1 and (name in MEAN_SHARE):
        pytest.skip("known for alpha=1 only")
    kept = operation(name, **options).mixed(torch.zeros(4000, 1, 32, 32), generator()).kept
    assert kept.std() > 0.02
    rounding = 0.01 if name in MEAN_SHARE else 0  # of boxes to pixels
    assert abs(kept.mean() - MEAN_SHARE.get(name, 0.5)) < 5 * kept.std() / 4000**0.5 + rounding


@pytest.mark.parametrize("alpha", [0.2, 1.0, 4.0])
def test_shares_are_drawn_from_a_beta(alpha: float) -> None:
    lam = Draws(generator(), torch.device("cpu")).lam(20_000, alpha)
    assert lam.mean() == pytest.approx(0.5, abs=0.02)
    assert lam.var() == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.05)


@each_mix
def test_a_large_alpha_halves(name: str) -> None:
    if name not in SHARED or name in ("cutmix", "random-2x2"):
        pytest.skip("the share does not follow from lam alone")
    kept = operation(name, alpha=1e6).mixed(torch.zeros(64, 3, 64, 64), generator()).kept
    tolerance = 5 * 0.5 / 64**0.5 if name in ("random-rows", "random-columns") else 0.05
    assert (kept - 0.5).abs().max() < tolerance


@settings(deadline=None, max_examples=20)
@given(count=st.integers(2, 33), seed=seeds)
def test_partners_form_a_circle(count: int, seed: int) -> None:
    partner = Draws(generator(seed), torch.device("cpu")).cycle(count)
    seen, at = [], 0
    for _ in range(count):
        at = int(partner[at])
        seen.append(at)
    assert sorted(seen) == list(range(count))
    assert at == 0


@pytest.mark.usefixtures("kernel")
def test_random_words_are_those_of_splitmix64() -> None:
    seed = torch.zeros((), dtype=torch.int64)
    made, reference = kernels.random_words(seed, 5000), random_words(seed, 5000)
    assert int(reference[0]) % 2**64 == 0xE220A8397B1DCDAF
    assert made is None or torch.equal(made, reference)


@pytest.mark.usefixtures("kernel")
@each_mix
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_types(name: str, dtype: torch.dtype) -> None:
    images, labels = randn(5, 3, 9, 7), targets(5)
    made, mixed = operation(name)(images.to(dtype), labels, generator())
    reference, shares = operation(name)(images, labels, generator())
    assert made.dtype is dtype
    tolerance = 3 * max(torch.finfo(dtype).eps, 1e-6)
    torch.testing.assert_close(made.float(), reference, rtol=tolerance, atol=2 * tolerance)
    torch.testing.assert_close(mixed, shares)


@pytest.mark.usefixtures("kernel")
@each_mix
def test_the_memory_format_is_kept_and_makes_no_difference(name: str) -> None:
    images, labels = randn(5, 3, 9, 7), targets(5)
    last = images.contiguous(memory_format=torch.channels_last)
    made, mixed = operation(name)(last, labels, generator())
    assert made.is_contiguous(memory_format=torch.channels_last)
    reference, shares = operation(name)(images, labels, generator())
    assert reference.is_contiguous()
    if name == "random-elements":
        return  # drawn in the order of memory
    torch.testing.assert_close(made, reference)
    torch.testing.assert_close(mixed, shares)


@each_mix
@pytest.mark.skipif(not native.available(), reason="the kernels are not built")
@settings(deadline=None, max_examples=15)
@given(shape=shapes, seed=seeds, layout=layouts)
def test_the_kernel_computes_what_torch_does(
    name: str, shape: tuple[int, ...], seed: int, layout: torch.memory_format
) -> None:
    images = randn(*shape, seed=seed).contiguous(memory_format=layout)
    made = operation(name).mixed(images, generator(seed)).images
    with pytest.MonkeyPatch.context() as patch:
        without_kernels(patch)
        reference = operation(name).mixed(images, generator(seed)).images
    torch.testing.assert_close(made, reference, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("kernel")
@each_mix
def test_a_view_with_gaps(name: str) -> None:
    images = randn(5, 3, 9, 16)[..., ::2]
    made = operation(name).mixed(images, generator()).images
    torch.testing.assert_close(made, operation(name).mixed(images.contiguous(), generator()).images)


@each_mix
def test_the_probability_of_being_mixed(name: str) -> None:
    images, labels = randn(200, 1, 8, 8), targets(200)
    made, mixed = operation(name, p=0)(images, labels, generator())
    assert torch.equal(made, images)
    assert torch.equal(mixed, labels)
    made, partner, kept = operation(name, p=0.5).mixed(images, generator())
    same = (made == images).flatten(1).all(1)
    assert 50 < same.sum() < 150
    assert (kept[same] == 1).all() or name in CENTRED
    assert (partner != torch.arange(200)).all()


@each_mix
def test_a_batch_of_one_and_other_shapes_are_refused(name: str) -> None:
    with pytest.raises(SurgeonError, match="at least two images"):
        operation(name)(randn(1, 3, 8, 8), targets(1), None)
    with pytest.raises(SurgeonError, match="shape"):
        operation(name)(randn(4, 8, 8), targets(4), None)
    with pytest.raises(SurgeonError, match="one share for each class"):
        operation(name)(randn(4, 3, 8, 8), torch.arange(4), None)


@each_mix
def test_integers(name: str) -> None:
    images, labels = torch.randint(256, (4, 3, 8, 8), dtype=torch.uint8, generator=generator()), torch.arange(4)
    mix = mixer(name, classes=CLASSES)
    if name in SELECTING:
        made, mixed = mix(images, labels, generator())
        assert made.dtype is torch.uint8
        assert mixed.shape == (4, CLASSES)
    else:
        with pytest.raises(SurgeonError, match=r"images\.float"):
            mix(images, labels, generator())


def test_gradients_reach_the_images() -> None:
    images = randn(4, 3, 8, 8).requires_grad_()
    operation("vh-mixup").mixed(images, generator()).images.sum().backward()
    assert images.grad is not None
    torch.testing.assert_close(images.grad.sum(), torch.tensor(4.0 * 3 * 8 * 8))


def test_mixed_concat_keeps_the_diagonal() -> None:
    made = operation("mixed-concat").mixed(numbered((40, 1, 8, 8), dtype=torch.float32), generator()).images
    own = made[:, 0] == torch.arange(40).view(-1, 1, 1)
    assert own[:, 0, 0].float().mean() > 0.8  # a cut at the border leaves none
    assert torch.equal(own[:, 0, 0] == own[:, 0, 7], own[:, 7, 0] == own[:, 7, 7])


def test_vertical_is_above_and_horizontal_beside() -> None:
    images = numbered((40, 1, 8, 8), dtype=torch.float32)
    own = operation("vertical-concat").mixed(images, generator()).images[:, 0] == torch.arange(40).view(-1, 1, 1)
    assert (own == own[:, :, :1]).all()
    assert (own[:, :-1] | ~own[:, 1:]).all()
    own = operation("horizontal-concat").mixed(images, generator()).images[:, 0] == torch.arange(40).view(-1, 1, 1)
    assert (own == own[:, :1]).all()
    assert (own[:, :, :-1] | ~own[:, :, 1:]).all()


def test_bc_plus_is_its_formula() -> None:
    images = randn(6, 3, 8, 8) * torch.arange(1, 7).view(-1, 1, 1, 1) + 1
    made, partner, lam = operation("bc-plus").mixed(images, generator())
    for i in range(6):
        own, other = (image - image.mean() for image in (images[i], images[partner[i]]))
        p = 1 / (1 + own.std(correction=0) / other.std(correction=0) * (1 - lam[i]) / lam[i])
        torch.testing.assert_close(made[i], (p * own + (1 - p) * other) / (p**2 + (1 - p) ** 2).sqrt())


def test_vh_bc_plus_is_its_formula() -> None:
    images = randn(6, 3, 8, 10) * torch.arange(1, 7).view(-1, 1, 1, 1) + 1
    images[:, :, 4:] += 1
    made, partner, kept = operation("vh-bc-plus").mixed(images, generator())
    draws = Draws(generator(), images.device)
    draws.cycle(6)
    first, second, lam = (draws.lam(6, 1.0) for _ in range(3))
    for i in range(6):
        own, other = (image - image.mean() for image in (images[i], images[partner[i]]))
        above, beside = int((first[i] * 8).round()), int((second[i] * 10).round())
        vertical = torch.cat([own[:, :above], other[:, above:]], 1)
        horizontal = torch.cat([own[:, :, :beside], other[:, :, beside:]], 2)
        p = 1 / (1 + vertical.std(correction=0) / horizontal.std(correction=0) * (1 - lam[i]) / lam[i])
        expected = (p * vertical + (1 - p) * horizontal) / (p**2 + (1 - p) ** 2).sqrt()
        torch.testing.assert_close(made[i], expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(kept[i], lam[i] * above / 8 + (1 - lam[i]) * beside / 10)


def test_images_of_one_colour_do_not_break_bc_plus() -> None:
    for name in CENTRED:
        made = operation(name).mixed(torch.ones(4, 3, 8, 8), generator()).images
        torch.testing.assert_close(made, torch.zeros_like(made))


def test_noise_differs_from_pixel_to_pixel_but_not_between_channels() -> None:
    images = numbered((4, 3, 16, 16), dtype=torch.float32)
    made = operation("noisy-mixup", noise=0.1).mixed(images, generator()).images
    assert (made[:, :1] == made).all()
    assert (made.flatten(2).std(2) > 0.01).all()


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_elements_of_a_pixel_are_drawn_apart_and_pixels_whole(layout: torch.memory_format) -> None:
    images = numbered((4, 3, 16, 16), dtype=torch.float32).contiguous(memory_format=layout)
    whole, apart = (operation(name).mixed(images, generator()).images for name in ("random-pixels", "random-elements"))
    assert (whole[:, :1] == whole).all()
    assert not (apart[:, :1] == apart).all()


def test_what_cutmix_did_can_be_told_to_a_loss() -> None:
    logits, labels = randn(5, CLASSES), torch.arange(5)
    _, permutation, kept = operation("cutmix").mixed(randn(5, 3, 8, 8), generator())
    loss = exchanged_loss(
        lambda scores, wanted: F.cross_entropy(scores, wanted, reduction="none"),
        logits, labels, None, CutMix(permutation, kept),
    )  # fmt: skip
    one_hot = soft(labels, CLASSES)
    cut = kept[:, None] * one_hot + (1 - kept[:, None]) * one_hot[permutation]
    torch.testing.assert_close(loss, F.cross_entropy(logits, cut))


def test_targets_may_be_on_class_numbers_or_shares() -> None:
    mix, images = mixer("mixup", classes=CLASSES), randn(4, 3, 8, 8)
    labels = torch.tensor([0, 1, 2, 3])
    numbers, shares = mix(images, labels, generator()), mix(images, soft(labels, CLASSES), generator())
    torch.testing.assert_close(numbers[1], shares[1])
    with pytest.raises(SurgeonError, match="5 classes"):
        mix(images, soft(labels, 4), generator())
    with pytest.raises(SurgeonError, match="Class numbers"):
        mix(images, labels[:, None], generator())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@each_mix
def test_a_generator_of_the_cpu_serves_a_gpu(name: str) -> None:
    images, labels = randn(6, 3, 9, 7), targets(6)
    made, mixed = operation(name)(images.cuda(), labels.cuda(), generator())
    reference, shares = operation(name)(images, labels, generator())
    torch.testing.assert_close(made.cpu(), reference)
    torch.testing.assert_close(mixed.cpu(), shares)


@settings(deadline=None, max_examples=10)
@given(shape=shapes, seed=seeds, size=st.integers(1, 14))
def test_cutout_blanks_one_box(shape: tuple[int, ...], seed: int, size: int) -> None:
    images, labels = torch.ones(shape), targets(shape[0])
    made, kept = augments["cutout"].build(augments["cutout"].configure({"size": size}), None)(
        images, labels, generator(seed)
    )
    assert torch.equal(kept, labels)
    assert images.all()
    assert ((made == 0) | (made == 1)).all()
    for image in made[:, 0]:
        blank = image == 0
        rows, columns = blank.any(1), blank.any(0)
        assert torch.equal(blank, rows[:, None] & columns)
        for visible, limit in ((rows.sum(), shape[2]), (columns.sum(), shape[3])):
            assert min(size - size // 2, limit) <= visible <= size


def test_cutout_of_some_images_in_the_middle_and_at_the_border() -> None:
    images = torch.ones(400, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    made, _ = mixer("cutout:p=0.5", classes=2)(images, torch.zeros(400, dtype=torch.long), generator())
    assert made.is_contiguous(memory_format=torch.channels_last)
    blank = (made[:, 0] == 0).sum((1, 2))
    assert 150 < (blank > 0).sum() < 250
    assert blank.max() == 16 * 16
    assert (blank[blank > 0] < 16 * 16).any()


def test_the_usual_size_of_cutout() -> None:
    assert [usual_size(side) for side in (32, 224)] == [16, 90]
    assert all(1 <= usual_size(side) <= max(1, side) for side in range(1, 600))
