"""Networks that segment, from Python: measured, swept, recalibrated, seen in several views, trained."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import surgeon
from surgeon.augment.pipeline import build_augmentation
from surgeon.conditions.base import ask
from surgeon.core.errors import SurgeonError
from surgeon.data.masks import VOID
from surgeon.losses.base import ask as ask_loss
from surgeon.measuring.inference import InferenceSettings
from surgeon.models.origin import LoadedModel, Origin, Preprocessing
from surgeon.models.sources import load_model
from surgeon.problems import SEGMENTATION
from surgeon.problems.segmentation import AUXILIARY_WEIGHT
from surgeon.surgery.temperature import set_temperature
from surgeon.training.copies import plan_copies
from surgeon.training.network import fit_to_classes, head_of
from surgeon.training.objective import Draws, Given, Objective
from surgeon.training.recipe import Recipe
from surgeon.views import views_for
from tests.reference.segmentation import MASK_METRICS
from tests.unit.segmentation.nets import HEIGHT, WIDTH, SmallSegmenter, batches, scene

PREPROCESSING = Preprocessing(input_size=(3, HEIGHT, WIDTH), mean=(0.5,) * 3, std=(0.5,) * 3)


def trained(steps: int = 40, auxiliary: bool = False) -> SmallSegmenter:
    torch.manual_seed(0)
    network = SmallSegmenter(auxiliary=auxiliary)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.02)
    images, masks = batches(8, 8)[0]
    for _ in range(steps):
        logits = network(images)["out"]
        loss = nn.functional.cross_entropy(logits, masks.long(), ignore_index=255)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return network.eval()


class Bare(nn.Module):
    """As segmentation-models-pytorch answers, and here of half the size."""

    def __init__(self, inner: nn.Module, half: bool) -> None:
        super().__init__()
        self.inner, self.half = inner, half

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.inner(x)["out"]
        return found[:, :, ::2, ::2] if self.half else found


def test_figures_from_python_are_those_of_the_formula() -> None:
    network = trained()
    record = surgeon.evaluate(network, batches())
    with torch.inference_mode():
        logits = torch.cat([network(images)["out"] for images, _ in batches()]).numpy()
    masks = torch.cat([masks for _, masks in batches()]).numpy()
    for name in ("iou", "accuracy", "cross-entropy", "ece"):
        assert record.value(name) == pytest.approx(MASK_METRICS[name](logits, masks, 255), abs=1e-6)
    assert record.iou > 0.6
    assert surgeon.evaluate(Bare(network, half=False), batches()) == record


def test_answers_of_another_size_are_enlarged() -> None:
    record = surgeon.evaluate(Bare(trained(), half=True), batches())
    assert record.iou > 0.4


def test_networks_that_do_not_segment_are_told() -> None:
    with pytest.raises(SurgeonError, match="not scores of every class for each pixel"):
        surgeon.evaluate(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()), batches())
    with pytest.raises(SurgeonError, match="not one tensor of logits"):
        surgeon.evaluate(trained(), [(torch.randn(2, 3, HEIGHT, WIDTH), torch.tensor([0, 1]))])


def test_alpha_is_swept_by_iou() -> None:
    network = trained()
    found = surgeon.sweep(network, batches(), alphas=[0, 0.1], confirm_on=batches(), force=True)
    assert found.metric == "iou"
    assert {gain.metric for gain in found.settings[-1].gains} >= {"iou"} or found.chosen == 0
    assert found.points[0].metrics == surgeon.evaluate(network, batches())
    with pytest.raises(SurgeonError, match="no value for segmentation"):
        surgeon.sweep(network, batches(), metric="top5")
    with pytest.raises(SurgeonError, match="fitted to classes of images"):
        surgeon.sweep(network, batches(), alphas=[0, 0.1], learn=["per-layer"], confirm_on=batches())


def test_statistics_are_estimated_without_masks() -> None:
    network = trained()
    darker = [(0.3 * images - 0.4, masks) for images, masks in batches()]
    before = surgeon.evaluate(network, darker).iou
    surgeon.recalibrate(network, darker, prior=0)
    assert surgeon.evaluate(network, darker).iou > before + 0.1


@pytest.mark.parametrize("name", ["flip", "multi-scale"])
def test_views_are_taken_back(name: str) -> None:
    """Of a network that gives each pixel its colour, every view has to agree with the image."""
    images, _ = batches(2, 2)[0]
    smooth = nn.functional.avg_pool2d(images, 5, stride=1, padding=2)
    settings = InferenceSettings(torch.device("cpu"), views=views_for(name, PREPROCESSING), problem=SEGMENTATION)
    (seen,) = settings.logits(lambda some: [some], smooth)
    inner = (..., slice(4, -4), slice(4, -4))
    assert seen.shape == smooth.shape
    torch.testing.assert_close(seen[inner], smooth[inner], atol=0.06 if name == "multi-scale" else 1e-6, rtol=0)


def test_views_that_cut_are_refused() -> None:
    settings = InferenceSettings(torch.device("cpu"), views=views_for("crop", PREPROCESSING), problem=SEGMENTATION)
    with pytest.raises(SurgeonError, match="The views 'crop' cut away parts of the image"):
        settings.logits(lambda some: [some], batches(2, 2)[0][0])


def test_a_temperature_divides_the_masks() -> None:
    network = trained()
    images, _ = batches(2, 2)[0]
    before = network(images)["out"]
    set_temperature(network, 2.0)
    torch.testing.assert_close(network(images)["out"], before / 2)


def objective(network: nn.Module, loss: tuple[str, ...] = ("cross-entropy",)) -> Objective:
    recipe = Recipe(augment=("standard:scale=1,flip=false",), loss=loss)
    copies = plan_copies(recipe, network, PREPROCESSING, branches=False, masks=True)
    return Objective(network, ask_loss(loss), copies, classes=3)


def test_the_loss_is_that_of_torch_and_of_auxiliary_heads() -> None:
    network = trained(5, auxiliary=True).train()
    images, masks = batches(4, 4)[0]
    labels = masks.long().masked_fill(masks == 255, VOID)
    outcome = objective(network)(network, Given((images,), labels, torch.arange(4)), Draws(torch.Generator()))
    answer = copy.deepcopy(network)(images)
    out, aux = (nn.functional.cross_entropy(answer[key], labels, ignore_index=VOID) for key in ("out", "aux"))
    torch.testing.assert_close(outcome.loss, out + AUXILIARY_WEIGHT * aux)
    assert outcome.examples == int((labels != VOID).sum())
    assert int(outcome.correct) == int((answer["out"].argmax(1) == labels).sum())
    outcome.loss.backward()
    assert network.aux is not None
    assert network.aux.weight.grad is not None


def test_a_batch_without_a_class_teaches_nothing() -> None:
    network = SmallSegmenter().train()
    images, _ = batches(2, 2)[0]
    labels = torch.full((2, HEIGHT, WIDTH), VOID)
    outcome = objective(network)(network, Given((images,), labels, torch.arange(2)), Draws(torch.Generator()))
    outcome.loss.backward()
    assert outcome.loss == 0
    assert all(not parameter.grad.any() for parameter in network.parameters() if parameter.grad is not None)


def test_label_smoothing_is_that_of_torch() -> None:
    network = trained(3).train()
    images, masks = batches(2, 2)[0]
    labels = masks.long().masked_fill(masks == 255, VOID)
    smoothed = objective(network, ("cross-entropy:smoothing=0.1,spread=all",))
    outcome = smoothed(network, Given((images,), labels, torch.arange(2)), Draws(torch.Generator()))
    logits = copy.deepcopy(network)(images)["out"]
    expected = nn.functional.cross_entropy(logits, labels, ignore_index=VOID, label_smoothing=0.1)
    torch.testing.assert_close(outcome.loss, expected)


def test_pictures_and_masks_are_cut_together() -> None:
    """A picture of its own mask stays one, whatever the crop and the flip."""
    _, mask = scene(3)
    classes = torch.from_numpy(mask).long()
    large = Image.fromarray(mask).resize((4 * WIDTH, 4 * HEIGHT), Image.Resampling.NEAREST).convert("RGB")
    labels = classes.repeat_interleave(4, 0).repeat_interleave(4, 1)
    nearest = PREPROCESSING.model_copy(update={"interpolation": "nearest"})
    augmentation = build_augmentation([], nearest, "standard", masks=True)
    assert augmentation.joint is not None
    seen = set()
    for seed in range(6):
        torch.manual_seed(seed)
        picture, cut = augmentation.joint(large, labels)
        shown = torch.from_numpy(np.array(picture))[..., 0].long()
        assert picture.size == (WIDTH, HEIGHT)
        assert cut.shape == (HEIGHT, WIDTH)
        assert (shown == cut).float().mean() > 0.9  # at edges, the nearest places of both differ by half a pixel
        seen.add(tuple(cut.flatten().tolist()))
    assert len(seen) == 6


@pytest.mark.parametrize(("spec", "reason"), [("mixup", "mixes images"), ("randaugment", "may move what")])
def test_what_masks_cannot_follow(spec: str, reason: str) -> None:
    with pytest.raises(SurgeonError, match=reason):
        build_augmentation([spec], PREPROCESSING, "standard", masks=True)


def test_what_moves_pixels_moves_masks() -> None:
    """An image that shows its own mask still does after it was bent, up to the interpolation at edges."""
    _, mask = scene(1)
    classes = torch.from_numpy(mask).long().clamp_max(2)
    large = classes.repeat_interleave(4, 0).repeat_interleave(4, 1)[None]
    pixels = (large[:, None].float() / 2).expand(-1, 3, -1, -1).contiguous()
    (bent,) = ask(["elastic-transform:severity=5"])
    indices = torch.tensor([7])
    moved = bent.masks(pixels, large, indices)
    shown = bent.apply(pixels, moved, indices)[:, 0].mul(2).round().long()
    assert (moved != large).float().mean() > 0.005
    assert (shown == moved).float().mean() > 0.97
    (noise,) = ask(["gaussian-noise:severity=1"])
    assert noise.masks(pixels, large, indices) is large
    for spec, reason in (("augment-randaugment", "may move image content"), ("fgsm", "networks that classify")):
        (asked,) = ask([spec])
        with pytest.raises(SurgeonError, match=reason):
            asked.masks(pixels, large, indices)


def test_units_that_mix_labels_are_refused() -> None:
    network = surgeon.convert(SmallSegmenter(), "moex:site=bn1", inputs=(torch.randn(2, 3, HEIGHT, WIDTH),))
    with pytest.raises(SurgeonError, match="mixes the labels of images"):
        SEGMENTATION.check_network(LoadedModel("small", network, Origin()))


def test_networks_of_segmentation_models_pytorch() -> None:
    smp = pytest.importorskip("segmentation_models_pytorch")
    torch.manual_seed(0)
    network = smp.Unet("resnet18", encoder_weights=None, classes=3).eval()
    images, masks = torch.randn(4, 3, 32, 32), torch.randint(0, 3, (4, 32, 32))
    before = surgeon.evaluate(network, [(images, masks)])
    converted = surgeon.convert(network, "example-weighted", inputs=(images[:2],))
    assert surgeon.evaluate(converted, [(images, masks)]).iou == pytest.approx(before.iou, abs=1e-4)
    assert surgeon.sweep(network, [(images, masks)], alphas=[0, 0.1]).metric == "iou"


def test_weights_bring_their_auxiliary_head(tmp_path: Path) -> None:
    from safetensors.torch import save_file
    from torchvision import models

    name = "deeplabv3_mobilenet_v3_large"
    torch.manual_seed(0)
    network = models.get_model(name, weights=None, weights_backbone=None, num_classes=5, aux_loss=True)
    save_file(network.state_dict(), tmp_path / "weights.safetensors")
    loaded = load_model(f"torchvision:{name}", weights=tmp_path / "weights.safetensors")
    assert loaded.origin.source is not None
    assert loaded.origin.source.arguments == {"num_classes": 5, "aux_loss": True}
    fitted = fit_to_classes(loaded, 3, 0, SEGMENTATION)
    assert fitted.model.aux_classifier[-1].out_channels == fitted.model.classifier[-1].out_channels == 3
    torch.testing.assert_close(fitted.model.state_dict()["backbone.0.0.weight"], network.backbone["0"][0].weight)
    assert head_of(fitted.model) == [fitted.model.classifier, fitted.model.aux_classifier]
