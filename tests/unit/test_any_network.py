"""Networks that answer in their own way, and scores of one's own: detection, several labels, regression."""

from __future__ import annotations

import math
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

import surgeon
from surgeon.core.errors import SurgeonError
from surgeon.layers.surgical import surgical_layers
from surgeon.results import Sweep

SAMPLES, OUTPUTS = 60, 3
GENERATOR = torch.Generator().manual_seed(0)
IMAGES = torch.randn(SAMPLES, 2, 6, 6, generator=GENERATOR) * torch.rand(SAMPLES, 1, 1, 1, generator=GENERATOR) * 3
LABELS = torch.randint(OUTPUTS, (SAMPLES,), generator=GENERATOR)
SEVERAL = torch.randint(2, (SAMPLES, OUTPUTS), generator=GENERATOR)
NUMBERS = torch.randn(SAMPLES, generator=GENERATOR)
ALPHAS = [0.0, 0.1, 0.5]


class Network(nn.Module):
    """A small BatchNorm network whose answer is wrapped in something."""

    def __init__(self, wrap: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, OUTPUTS)
        self.wrap = wrap

    def forward(self, pixel_values: Tensor) -> Any:
        return self.wrap(self.head(self.norm(self.conv(pixel_values)).relu().mean((2, 3))))


class Detector(Network):
    """Takes a list of images of any size, and answers with one dictionary for each."""

    def forward(self, images: list[Tensor]) -> list[dict[str, Tensor]]:
        return [{"scores": super(Detector, self).forward(image[None])[0]} for image in images]


def network(wrap: Callable[[Tensor], Any] = lambda logits: logits, kind: type[Network] = Network) -> Network:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return kind(wrap).eval()


@dataclass
class HuggingFaceOutput(OrderedDict):
    """As transformers has them: a dictionary whose keys are attributes too."""

    loss: Any = None
    logits: Any = None

    def __post_init__(self) -> None:
        self.update({name: value for name, value in vars(self).items() if value is not None})


Pair = namedtuple("Pair", ["logits", "aux"])
WRAPPED = {
    "hugging face": lambda logits: HuggingFaceOutput(logits=logits),
    "attribute": lambda logits: Pair(logits, None),
    "dictionary": lambda logits: {"loss": logits.mean(), "scores": logits},
    "named in a dictionary": lambda logits: {"features": logits.repeat(1, 4), "logits": logits},
    "tuple": lambda logits: (logits,),
    "loss first": lambda logits: (logits.mean(), logits),
    "auxiliary head": lambda logits: (logits, logits * 0),
    "auxiliary head in a dictionary": lambda logits: {"aux": logits * 0, "out": logits},
}


def batches(*targets: Any, size: int = 16) -> list[Any]:
    return [(IMAGES[at : at + size], *(one[at : at + size] for one in targets)) for at in range(0, SAMPLES, size)]


@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
def test_wrapped_logits_are_measured_like_plain_ones(wrap: Callable[[Tensor], Any]) -> None:
    plain, wrapped = network(), network(wrap)
    loader = batches(LABELS)
    assert surgeon.evaluate(wrapped, loader) == surgeon.evaluate(plain, loader)
    mine, theirs = (surgeon.sweep(one, loader, alphas=ALPHAS) for one in (wrapped, plain))
    assert [point.metrics for point in mine.points] == [point.metrics for point in theirs.points]
    learned = [
        surgeon.sweep(one, loader, alphas=ALPHAS, learn=["per-layer"], confirm_on=loader).learned[0].alphas
        for one in (wrapped, plain)
    ]
    assert learned[0] == learned[1]


@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
def test_statistics_are_estimated_and_entropy_is_minimised_alike(wrap: Callable[[Tensor], Any]) -> None:
    found = []
    for one in (network(wrap), network()):
        surgeon.recalibrate(one, [{"pixel_values": IMAGES, "labels": LABELS}], prior=8, tent=True, epochs=2)
        found.append(one.state_dict())
    for name, values in found[0].items():
        torch.testing.assert_close(values, found[1][name], rtol=0, atol=0)


def test_statistics_are_collected_from_dictionaries() -> None:
    one = network(WRAPPED["hugging face"])
    one.norm = nn.BatchNorm2d(4, track_running_stats=False)
    surgeon.collect_statistics(one, [{"pixel_values": IMAGES, "labels": LABELS}])
    features = one.conv(IMAGES).double()
    torch.testing.assert_close(one.norm.running_mean.double(), features.mean((0, 2, 3)), rtol=1e-4, atol=1e-5)
    with pytest.raises(SurgeonError, match="dictionary of text, without images"):
        surgeon.collect_statistics(
            surgeon.convert(nn.Sequential(nn.BatchNorm2d(2, track_running_stats=False)), "ghost"), [{"text": 1}]
        )


def several_labels(output: Any, target: Tensor) -> Tensor:
    return ((output > 0) == target.bool()).double().mean(1)


def regression(output: Any, target: Tensor) -> Tensor:
    return -(output[:, 0].double() - target.double()).abs()


def detection(output: list[dict[str, Tensor]], target: list[dict[str, Tensor]]) -> list[float]:
    return [float(-(o["scores"] - t["boxes"]).abs().sum()) for o, t in zip(output, target, strict=True)]


BOXES = [{"boxes": torch.randn(OUTPUTS, generator=GENERATOR)} for _ in range(SAMPLES)]
TASKS: dict[str, tuple[type[Network], Any, Any]] = {
    "several labels": (Network, SEVERAL, several_labels),
    "regression": (Network, NUMBERS, regression),
    "detection": (Detector, BOXES, detection),
}


def loader_of(kind: type[Network], target: Any) -> list[Any]:
    plain = batches(target)
    return [(list(images), some) for images, some in plain] if kind is Detector else plain


def reference(kind: type[Network], target: Any, score: Any, alpha: float) -> np.ndarray:
    """The score of each sample by plain torch, each sample alone."""
    one = surgeon.convert(network(kind=kind), "example-weighted", alpha=alpha).eval()
    with torch.no_grad():
        answers = [one([image] if kind is Detector else image[None]) for image in IMAGES]
    return np.array([float(score(answers[i], target[i : i + 1])[0]) for i in range(SAMPLES)])


def interval(differences: np.ndarray) -> tuple[float, float]:
    """Student's, longer on the side of rare large values by the first-order correction for skewness."""
    n, mean = len(differences), differences.mean()
    quantile = stats.t.ppf(0.975, n - 1)
    longer = stats.skew(differences) * (1 + 2 * quantile**2) / (6 * math.sqrt(n))
    error = differences.std(ddof=1) / math.sqrt(n)
    return mean - error * (quantile + max(-longer, 0)), mean + error * (quantile + max(longer, 0))


@pytest.mark.parametrize(("kind", "target", "score"), TASKS.values(), ids=TASKS)
def test_a_score_of_ones_own_sweeps_any_network(kind: type[Network], target: Any, score: Any) -> None:
    found = surgeon.sweep(network(kind=kind), loader_of(kind, target), alphas=ALPHAS, score=score)
    expected = {alpha: reference(kind, target, score, alpha) for alpha in ALPHAS}
    for point in found.points:
        assert point.metrics.images == SAMPLES
        assert point.metrics.score == pytest.approx(expected[point.value].mean(), rel=1e-4)
        if point.value:
            differences = expected[point.value] - expected[0.0]
            low, high = interval(differences)
            assert point.gain is not None
            assert point.gain.difference == pytest.approx(differences.mean(), rel=1e-3, abs=1e-6)
            assert (point.gain.low, point.gain.high) == pytest.approx((low, high), rel=1e-3, abs=1e-5)
            assert point.gain.gained == (differences > 1e-7).sum()
    assert found.metric == "score"
    assert found.chosen == max(ALPHAS, key=lambda alpha: expected[alpha].mean())
    assert Sweep.model_validate_json(found.model_dump_json()) == found
    assert found.temperature is None
    assert "score" in found.summary[0]
    whole = surgeon.evaluate(network(kind=kind), loader_of(kind, target), score=score)
    assert whole == found.points[0].metrics
    assert whole.score_low < whole.score < whole.score_high


def test_a_converted_network_is_left_at_its_best_setting_and_can_be_saved(tmp_path: Any) -> None:
    """Samples of one brightness: the score is how near the network comes to what alpha 0.5 gives."""
    target = surgeon.convert(network(), "example-weighted", alpha=0.5).eval()(IMAGES).detach()
    one = surgeon.convert(network(), "example-weighted")
    near = lambda output, wanted: -(output - wanted).abs().sum(1)  # noqa: E731
    found = surgeon.sweep(one, batches(target), alphas=ALPHAS, score=near, confirm_on=batches(target), method="race")
    assert found.kept == "alpha 0.5"
    assert {layer.constant_alpha for layer in surgical_layers(one).values()} == {0.5}
    surgeon.save(one, tmp_path / "swept")
    assert "alpha" in (tmp_path / "swept" / "README.md").read_text("utf-8")


def test_right_and_wrong_have_the_intervals_of_accuracy() -> None:
    right = lambda output, target: output.argmax(1) == target  # noqa: E731
    found = surgeon.sweep(network(), batches(LABELS), alphas=ALPHAS, score=right)
    usual = surgeon.sweep(network(), batches(LABELS), alphas=ALPHAS)
    for mine, theirs in zip(found.points[1:], usual.points[1:], strict=True):
        assert mine.gain is not None
        assert theirs.gain is not None
        assert (mine.gain.low, mine.gain.high) == (theirs.gain.low, theirs.gain.high)


def test_a_setting_whose_scores_are_not_numbers_loses() -> None:
    def score(output: Tensor, target: Tensor) -> Tensor:  # noqa: ARG001
        return torch.where(output.sum() == first, 1.0, torch.nan).expand(len(output))

    first = network()(IMAGES).sum()
    found = surgeon.sweep(network(), [(IMAGES, LABELS)], alphas=ALPHAS, score=score)
    assert found.kept == "original"
    assert found.points[1].metrics.nan_images == SAMPLES


@pytest.mark.parametrize("measure", [surgeon.evaluate, surgeon.sweep])
@pytest.mark.parametrize(
    ("score", "told"),
    [
        (lambda output, target: output.mean(), "gives a single number for 16 samples"),  # noqa: ARG005
        (lambda output, target: output, "numbers of the shape 16x3 for 16 samples"),  # noqa: ARG005
        (lambda output, target: output.nothing, "score= failed: AttributeError"),  # noqa: ARG005
        (lambda output, target: "good", "gives a str, not numbers"),  # noqa: ARG005
        (lambda output, target: None, "gives a NoneType, not numbers"),  # noqa: ARG005
        (lambda output, target: output[:, 0] + 1j, "gives a Tensor, not numbers"),  # noqa: ARG005
    ],
)
def test_scores_that_cannot_be_used_are_told(measure: Callable[..., Any], score: Any, told: str) -> None:
    with pytest.raises(SurgeonError, match=told):
        measure(network(), batches(LABELS), score=score)


@pytest.mark.parametrize(
    ("batch", "told"),
    [
        ((IMAGES, LABELS[:3]), "60 samples and 3 targets"),
        (([1, 2], [1, 2]), "inputs of a batch are a list of int"),
        (IMAGES, "this one is a Tensor"),
        ({"text": IMAGES, "label": LABELS}, "this one is a dictionary of text and label"),
    ],
)
def test_samples_that_cannot_be_used_are_told(batch: Any, told: str) -> None:
    with pytest.raises(SurgeonError, match=told):
        surgeon.evaluate(network(), [batch], score=regression)


@pytest.mark.parametrize("measure", [surgeon.evaluate, surgeon.sweep])
def test_which_of_two_tensors_are_logits_is_not_guessed(measure: Callable[..., Any]) -> None:
    """In a dictionary no order tells; features may have as many columns as there are classes."""
    wrapped = network(lambda logits: {"features": logits * 0, "scores": logits})
    with pytest.raises(SurgeonError, match=r"several tensors that may be logits: features \(16x3\) and scores"):
        measure(wrapped, batches(LABELS))


class TakesTwo(Network):
    def forward(self, images: Tensor, sizes: Tensor) -> Any:  # type: ignore[override]
        return super().forward(images * sizes)


@pytest.mark.parametrize("options", [{}, {"score": regression}], ids=["classes", "score"])
def test_what_a_network_cannot_take_is_a_sentence(options: Any) -> None:
    told = r"cannot take a batch of 16x2x6x6: .* 'sizes'\. .* needs a module around it"
    with pytest.raises(SurgeonError, match=told):
        surgeon.evaluate(network(kind=TakesTwo), batches(LABELS), **options)


@pytest.mark.parametrize(
    ("options", "told"),
    [({"metric": "ece"}, "not by both"), ({"learn": ["per-layer"], "confirm_on": []}, "minimises the cross-entropy")],
)
def test_a_score_stands_alone(options: Any, told: str) -> None:
    with pytest.raises(SurgeonError, match=told):
        surgeon.sweep(network(), batches(LABELS), score=regression, **options)


class Reader(nn.Module):
    """Takes the numbers of words, 0 for padding, and says where they end."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.conv = nn.Embedding(20, 4, padding_idx=0), nn.Conv1d(4, 6, 3, padding=1)
        self.norm, self.head = nn.BatchNorm1d(6), nn.Linear(6, OUTPUTS)

    def forward(self, numbers: Tensor) -> Any:
        with surgeon.padding(numbers == 0):
            return self.head(self.norm(self.conv(self.words(numbers).mT)).relu().amax(-1))


WORDS = torch.randint(1, 20, (SAMPLES, 9), generator=GENERATOR).masked_fill(torch.arange(9) > 6, 0)


def test_networks_of_words_are_rewritten_measured_and_swept() -> None:
    torch.manual_seed(0)
    loader = [(WORDS[at : at + 16], LABELS[at : at + 16]) for at in range(0, SAMPLES, 16)]
    plain = Reader().eval()
    model = surgeon.convert(plain, "crossnorm:site=norm,p=1", "selfnorm:site=norm", inputs=(WORDS[:2],))
    assert surgeon.evaluate(model, loader).accuracy == surgeon.evaluate(plain, loader).accuracy
    assert isinstance(surgeon.sweep(model, loader, alphas=[0, 0.2]), Sweep)
    assert surgeon.recalibrate(model, loader).images == SAMPLES
    before = [buffer.clone() for buffer in model.buffers()]
    model.train()(WORDS[:8]).sum().backward()
    assert not all(torch.equal(*pair) for pair in zip(before, model.buffers(), strict=True))
