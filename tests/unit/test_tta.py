"""Views against torchvision, merges against float64, and what cannot be done."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn
from torchvision.transforms import functional as reference

from surgeon.core.errors import SurgeonError
from surgeon.models.origin import Preprocessing
from surgeon.views import Merge, Merger, Views, predict, views
from tests.helpers import randn, small_images, small_resnet

FLIPPED = {"flip", "flip-crop", "cifar-flip-crop", "imagenet-flip-crop", "ten-crop"}


def network(side: int, crop_pct: float = 0.875) -> Preprocessing:
    return Preprocessing(input_size=(3, side, side), mean=(0.5,) * 3, std=(0.2,) * 3, crop_pct=crop_pct)


def views_for(name: str, side: int = 32, crop_pct: float = 0.875) -> Views:
    return views[name].for_network(network(side, crop_pct))


def batch_for(made: Views, images: int = 2) -> Tensor:
    return randn(images, *made.preprocessing.input_size)


@pytest.mark.parametrize("name", list(views))
def test_number_and_shape_of_views(name: str) -> None:
    side = 224 if name == "imagenet-flip-crop" else 32
    made = views_for(name, side)
    generated = list(made.of(batch_for(made)))
    assert len(generated) == made.count == views[name].count
    if name != "multi-scale":
        assert {tuple(view.shape) for view in generated} == {(2, 3, side, side)}
    for number, view in enumerate(generated):
        assert not any(view.shape == other.shape and torch.equal(view, other) for other in generated[:number])


@pytest.mark.parametrize("name", sorted(FLIPPED))
def test_half_of_the_views_are_mirror_images(name: str) -> None:
    made = views_for(name, 224 if name == "imagenet-flip-crop" else 32)
    generated = list(made.of(batch_for(made, 1)))
    hashes = {view.contiguous().numpy().tobytes() for view in generated}
    assert hashes == {view.flip(-1).contiguous().numpy().tobytes() for view in generated}


@pytest.mark.parametrize(("name", "expected"), [("five-crop", reference.five_crop), ("ten-crop", reference.ten_crop)])
@pytest.mark.parametrize(("side", "crop_pct", "larger"), [(224, 0.875, 256), (32, 1.0, 36), (33, 0.9, 36)])
def test_crops_are_those_of_torchvision(name: str, expected: object, side: int, crop_pct: float, larger: int) -> None:
    made = views_for(name, side, crop_pct)
    assert made.preprocessing.input_size == (3, larger, larger)
    assert made.preprocessing.crop_pct == 1
    batch = batch_for(made)
    for ours, theirs in zip(made.of(batch), expected(batch, side), strict=True):  # type: ignore[operator]
        assert torch.equal(ours, theirs)


def test_imagenet_crops() -> None:
    made = views_for("imagenet-flip-crop", 224)
    assert (made.preprocessing.input_size, made.preprocessing.crop_pct) == ((3, 256, 256), 1)
    batch = batch_for(made, 1)
    generated = list(made.of(batch))
    offsets = [(top, left) for top in (0, 16, 32) for left in (0, 16, 32)]
    for (top, left), view in zip(offsets, generated[:9], strict=True):
        assert torch.equal(view, reference.crop(batch, top, left, 224, 224))
    assert torch.equal(generated[4], reference.center_crop(batch, [224, 224]))
    with pytest.raises(SurgeonError, match="takes 288x288"):
        views_for("imagenet-flip-crop", 288)


def test_cifar_crops_are_padded_with_what_is_zero_after_normalisation() -> None:
    settings = network(32)
    raw = torch.rand(2, 3, 32, 32)
    mean, std = (torch.tensor(values)[:, None, None] for values in (settings.mean, settings.std))
    with_mean_colour = mean.expand(2, 3, 40, 40).clone()
    with_mean_colour[:, :, 4:36, 4:36] = raw
    expected = (with_mean_colour - mean) / std
    generated = list(views_for("cifar-flip-crop").of((raw - mean) / std))
    for number, view in enumerate(generated[:81]):
        top, left = divmod(number, 9)
        torch.testing.assert_close(view, reference.crop(expected, top, left, 32, 32))
    assert generated[0][:, :, :4].abs().max() == 0


def test_shifts_repeat_the_border_and_keep_the_image() -> None:
    batch = randn(2, 3, 32, 32)
    generated = list(views_for("crop").of(batch))
    padded = reference.pad(batch, [2], padding_mode="edge")
    for ours, theirs in zip(generated, reference.five_crop(padded, 32), strict=True):
        assert torch.equal(ours, theirs)
    assert torch.equal(generated[4], batch)


def test_scales() -> None:
    made = views_for("multi-scale", 224)
    batch = batch_for(made, 1)
    generated = list(made.of(batch))
    assert [view.shape[-1] for view in generated] == [192, 224, 256]
    assert torch.equal(generated[1], batch)
    torch.testing.assert_close(generated[0], reference.resize(batch, [192, 192], antialias=True))


def test_images_of_the_wrong_size_are_refused() -> None:
    with pytest.raises(SurgeonError, match="need images of 256x256, not 224x224"):
        views_for("ten-crop", 224).of(randn(1, 3, 224, 224))


def merged(merge: Merge, logits: Tensor) -> Tensor:
    merger = Merger(merge)
    for view in logits:
        merger.add(view)
    return merger.result()


def test_merges_against_float64() -> None:
    logits = randn(7, 5, 11) * 30
    probabilities = logits.double().softmax(-1)
    geometric = probabilities.log().mean(0).exp()
    expected = {
        Merge.LOGITS: logits.double().mean(0),
        Merge.PROBABILITIES: probabilities.mean(0).log(),
        Merge.GEOMETRIC: (geometric / geometric.sum(-1, keepdim=True)).log(),
    }
    for merge in Merge:
        torch.testing.assert_close(merged(merge, logits).double(), expected[merge], rtol=1e-6, atol=2e-5)
        torch.testing.assert_close(merged(merge, logits.double()), expected[merge], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("merge", list(Merge))
def test_half_precision_is_merged_in_single(merge: Merge) -> None:
    assert merged(merge, randn(3, 2, 4).bfloat16()).dtype == torch.float32


@pytest.mark.parametrize("merge", list(Merge))
def test_extreme_logits_stay_finite(merge: Merge) -> None:
    assert merged(merge, torch.tensor([[[1e4, 0.0]], [[0.0, 1e4]]])).isfinite().all()


def test_impossible_classes() -> None:
    logits = torch.tensor([[[0.0, -math.inf, 1.0]], [[0.0, 1.0, 1.0]]])
    for merge in Merge:
        result = merged(merge, logits)
        assert not result.isnan().any()
        assert result[0, 1].isneginf() == (merge is not Merge.PROBABILITIES)
    contradicting = torch.tensor([[[0.0, -math.inf]], [[-math.inf, 0.0]]])
    half = torch.full((1, 2), -math.log(2))
    torch.testing.assert_close(merged(Merge.GEOMETRIC, contradicting), half)
    torch.testing.assert_close(merged(Merge.PROBABILITIES, contradicting), half)


def test_nan_stays_nan() -> None:
    for merge in Merge:
        assert merged(merge, torch.tensor([[[0.0, math.nan]], [[0.0, 1.0]]])).isnan().any()


def test_nothing_to_merge() -> None:
    with pytest.raises(SurgeonError, match="no views"):
        Merger(Merge.LOGITS).result()


class Recorder(nn.Module):
    """Passes batches on and remembers how many rows they had."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.rows: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.rows.append(len(x))
        logits: Tensor = self.model(x)
        return logits


@pytest.mark.parametrize("name", ["flip", "flip-crop", "cifar-flip-crop", "multi-scale"])
@pytest.mark.parametrize("max_batch", [1, 2, 3, 10, 4096])
def test_packing_does_not_change_predictions(name: str, max_batch: int) -> None:
    made, batch, model = views_for(name, 8), small_images(3), small_resnet()
    recorder = Recorder(model)
    with torch.no_grad():
        expected = torch.stack([model(view) for view in made.of(batch)]).mean(0)
    torch.testing.assert_close(predict(recorder, batch, made, max_batch=max_batch), expected, rtol=1e-4, atol=1e-5)
    assert max(recorder.rows) <= max_batch
    assert sum(recorder.rows) == made.count * len(batch)


def test_packs_are_as_large_as_allowed() -> None:
    recorder = Recorder(small_resnet())
    predict(recorder, small_images(3), views_for("cifar-flip-crop", 8), max_batch=256)
    assert recorder.rows == [255, 231]


@pytest.mark.parametrize("merge", list(Merge))
def test_predictions_are_merged_as_asked(merge: Merge) -> None:
    made, batch, model = views_for("flip", 8), small_images(3), small_resnet()
    with torch.no_grad():
        expected = merged(merge, torch.stack([model(view) for view in made.of(batch)]))
    torch.testing.assert_close(predict(model, batch, made, merge), expected)


def test_networks_of_a_fixed_size_cannot_see_several_scales() -> None:
    fixed = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 4))
    batch = small_images(3)
    assert predict(fixed, batch, views_for("flip-crop", 8)).shape == (3, 4)
    with pytest.raises(SurgeonError, match=r"any size, but this one does not take 7x7 .* Use flip"):
        predict(fixed, batch, views_for("multi-scale", 8))


def test_other_failures_of_the_network_are_not_blamed_on_the_views() -> None:
    broken = nn.Sequential(nn.Flatten(), nn.Linear(5, 4))
    with pytest.raises(RuntimeError, match="shapes"):
        predict(broken, small_images(3), views_for("flip", 8))


def test_a_batch_needs_rows() -> None:
    with pytest.raises(SurgeonError, match="0 rows"):
        predict(small_resnet(), small_images(3), views_for("flip", 8), max_batch=0)


def test_views_are_listed_without_torch() -> None:
    code = (
        "import sys; from surgeon.views import views; "
        "print(*[f'{n}:{views[n].count}' for n in views if views[n].summary]); print('torch' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    names = "cifar-flip-crop:162 crop:5 five-crop:5 flip:2 flip-crop:10 imagenet-flip-crop:18 multi-scale:3 ten-crop:10"
    assert answer.splitlines() == [names, "False"]
