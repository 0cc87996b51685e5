"""Attacks against closed forms and references in float64, and what they leave alone."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from timm.layers import BatchNormAct2d
from torch import Generator, Tensor, nn

import surgeon
from surgeon.checkpoint import open_model
from surgeon.conditions.attacks import ascent
from surgeon.conditions.attacks.network import attacked
from surgeon.conditions.base import ask
from surgeon.core.errors import SurgeonError
from surgeon.data.loaders import Batch
from surgeon.measuring.axes import AlphaAxis
from surgeon.measuring.conditions import ConditionMaker
from surgeon.models.origin import Preprocessing
from tests.helpers import Snapshot, small_resnet
from tests.reference import attacks as reference

SIZE, CLASSES = (3, 4, 4), 4
FEATURES = 48
PLAIN = Preprocessing(input_size=(3, 8, 8), mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3))
KINDS = ["fgsm", "pgd:steps=3", "spsa:steps=2,samples=3"]
NEEDS_AUTO_ATTACK = pytest.mark.skipif(
    importlib.util.find_spec("pyautoattack") is None, reason="pyautoattack is not installed"
)


def generators(count: int, seed: int = 0) -> list[Generator]:
    return [Generator().manual_seed(seed + number) for number in range(count)]


def pictures(count: int = 5, size: tuple[int, ...] = SIZE, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.rand(count, *size, generator=Generator().manual_seed(1), dtype=torch.float64).to(dtype)


def classes(count: int = 5) -> Tensor:
    return torch.arange(count) % CLASSES


def linear(outputs: int = CLASSES) -> tuple[Callable[[Tensor], Tensor], np.ndarray, np.ndarray]:
    """Logits W x + b, with W and b as arrays."""
    draw = Generator().manual_seed(2)
    weight = torch.randn(outputs, FEATURES, generator=draw, dtype=torch.float64)
    bias = torch.randn(outputs, generator=draw, dtype=torch.float64)
    return lambda x: x.flatten(1) @ weight.T + bias, weight.numpy(), bias.numpy()


def batch(count: int = 5) -> Batch:
    """Of bytes, normalised as the engine has them."""
    images = surgeon.measuring.conditions.renormalise(
        pictures(count, (3, 8, 8)).mul(255).round().div(255).float(), PLAIN
    )
    return Batch(images, classes(count), torch.arange(count))


def test_two_linear_classes_are_attacked_at_the_optimum() -> None:
    logits, weight, _ = linear(2)
    images, labels, eps = pictures(), torch.tensor([0, 1, 0, 1, 1]), 0.1
    towards = np.sign(np.where(labels.numpy()[:, None] == 0, 1, -1) * (weight[1] - weight[0]))
    optimum = np.clip(images.numpy() + eps * towards.reshape(images.shape), 0, 1)  # of a linear function on a box
    np.testing.assert_allclose(ascent.fgsm(logits, images, labels, eps=eps).numpy(), optimum, atol=1e-12)
    found = ascent.pgd(logits, images, labels, generators(5), eps=eps, step=0.02, steps=10)
    np.testing.assert_allclose(found.numpy(), optimum, atol=1e-12)
    without_gradients = ascent.spsa(
        logits, images, labels, generators(5), eps=eps, step=0.05, steps=20, samples=200
    )  # fmt: skip
    clean, best, reached = (ascent.margin_against(logits(x), labels) for x in (images, found, without_gradients))
    assert ((reached - clean) > 0.9 * (best - clean)).all()
    assert (reached <= best + 1e-9).all()


@pytest.mark.parametrize("eps", [0.0, 0.01, 0.3])
def test_steps_follow_the_gradient_of_cross_entropy(eps: float) -> None:
    logits, weight, bias = linear()
    images, labels = pictures(), classes()
    ours = ascent.fgsm(logits, images, labels, eps=eps), ascent.pgd(
        logits, images, labels, generators(5), eps=eps, step=0.02, steps=7
    )  # fmt: skip
    for number, draw in enumerate(generators(5)):
        image, label = images[number].numpy(), int(labels[number])
        start = torch.rand(SIZE, generator=draw, dtype=torch.float64).numpy() * 2 - 1
        np.testing.assert_allclose(ours[0][number], reference.fgsm(weight, bias, image, label, eps), atol=1e-12)
        expected = reference.pgd(weight, bias, image, label, start, eps, 0.02, 7)
        np.testing.assert_allclose(ours[1][number], expected, atol=1e-12)


def test_a_concave_loss_is_climbed_to_the_projection_of_its_top() -> None:
    tops = pictures(5) * 1.6 - 0.3  # some of them outside what a picture can show
    distance = lambda x: (x - tops).square().flatten(1).sum(1)  # noqa: E731
    logits = lambda x: torch.stack([torch.zeros(len(x), dtype=x.dtype), -distance(x)], 1)  # noqa: E731
    images, eps, step = pictures().flip(0), 0.15, 0.001
    found = ascent.pgd(logits, images, torch.zeros(5, dtype=torch.int64), generators(5), eps=eps, step=step, steps=400)
    nearest = tops.clamp(images - eps, images + eps).clamp(0, 1)
    assert (found - nearest).abs().max() <= step


def test_spsa_takes_the_steps_of_its_paper() -> None:
    logits, weight, bias = linear()
    images, labels, steps, samples = pictures(3), classes(3), 4, 5
    found = ascent.spsa(
        logits, images, labels, generators(3), eps=0.05, step=0.02, steps=steps, samples=samples
    )  # fmt: skip
    for number, draw in enumerate(generators(3)):
        signs = [
            [torch.randint(0, 2, SIZE, generator=draw).numpy() * 2.0 - 1 for _ in range(samples)] for _ in range(steps)
        ]

        def margin(x: np.ndarray, label: int = int(labels[number])) -> float:
            scores = weight @ x.ravel() + bias
            return float(np.delete(scores, label).max() - scores[label])

        expected = reference.spsa(margin, images[number].numpy(), signs, 0.05, 0.02)
        np.testing.assert_allclose(found[number], expected, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("eps", [0.0, 0.03, 0.5])
def test_images_stay_in_their_box_and_visible(kind: str, eps: float) -> None:
    (asked,) = ask([kind + (":" if ":" not in kind else ",") + f"eps={eps}"])
    model = small_resnet()
    with attacked(model, PLAIN, torch.device("cpu")) as network:
        images = pictures(5, (3, 8, 8), torch.float32)
        found = asked.apply(images, classes(), torch.arange(5), 0, network)
    assert (found - images).abs().max() <= eps + 1e-7
    assert found.min() >= 0
    assert found.max() <= 1
    assert torch.equal(found, images) == (eps == 0)


@pytest.mark.parametrize("kind", ["fgsm:eps=0", "pgd:eps=0,steps=3", "spsa:eps=0,steps=1,samples=2"])
def test_at_eps_0_the_network_sees_what_it_sees_without_an_attack(kind: str) -> None:
    condition = ConditionMaker().make(ask([kind])[0], PLAIN, small_resnet())
    assert condition is not None
    assert torch.equal(condition(batch()).images, batch().images)


def test_a_sure_network_does_not_look_robust() -> None:
    images, labels = pictures(dtype=torch.float32), linear()[0](pictures()).argmax(1)
    weight = torch.from_numpy(linear()[1]).float()
    found = []
    for scale in (1, 1e4):  # of which the gradient of cross-entropy is 0 in float32
        logits = lambda x, scale=scale: scale * x.flatten(1) @ weight.T  # noqa: E731
        found.append(ascent.fgsm(logits, images, labels, eps=0.1))
    assert (found[0] != found[1]).float().mean() < 0.2  # only the weights of the wrong classes are others
    assert ((found[1] - images).abs() > 0).float().mean() > 0.9
    assert (scale * found[1].flatten(1) @ weight.T).argmax(1).ne(labels).any()


def digits(count: int) -> tuple[nn.Module, Preprocessing, Tensor, Tensor]:
    loaded = open_model("digits-resnet8")
    data = np.load(surgeon.checkpoint.ASSETS / "digits" / "digits.npz")
    images, labels = data["images"], data["labels"]
    preprocessing = loaded.origin.preprocessing
    assert preprocessing is not None
    pixels = torch.from_numpy(images[:count].reshape(-1, 1, 8, 8).astype(np.float32) / images.max())
    return loaded.model, preprocessing, pixels, torch.from_numpy(labels[:count].astype(np.int64))


def accuracy(spec: str, count: int = 100) -> float:
    model, preprocessing, pixels, labels = digits(count)
    with attacked(model, preprocessing, torch.device("cpu")) as network:
        (asked,) = ask([spec])
        found = asked.apply(pixels, labels, torch.arange(count), 0, network)
        with torch.no_grad():
            return float((network(found).argmax(1) == labels).float().mean())


def test_more_steps_and_larger_eps_are_not_weaker() -> None:
    by_steps = [accuracy(f"pgd:eps=0.1,step=0.02,steps={steps}") for steps in (1, 3, 10, 30)]
    assert by_steps == sorted(by_steps, reverse=True)
    by_eps = [accuracy(f"pgd:eps={eps},step=0.05,steps=10") for eps in (0, 0.05, 0.1, 0.2)]
    assert by_eps == sorted(by_eps, reverse=True)
    assert by_eps[0] > 0.95
    assert by_eps[-1] < 0.2
    assert accuracy("pgd:eps=0.1,step=0.02,steps=10") <= accuracy("fgsm:eps=0.1")
    assert accuracy("pgd:eps=0.1,step=0.02") <= accuracy("spsa:eps=0.1,step=0.02")


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_is_attacked_alike_in_every_batch(kind: str) -> None:
    (asked,) = ask([kind])
    model = surgeon.convert(small_resnet(), "example-weighted:alpha=0.2").double()
    with attacked(model, PLAIN, torch.device("cpu")) as network:
        images, labels, indices = pictures(5, (3, 8, 8)), classes(), torch.tensor([3, 1, 4, 15, 9])
        together = asked.apply(images, labels, indices, 7, network)
        for number in range(5):
            one = slice(number, number + 1)
            torch.testing.assert_close(asked.apply(images[one], labels[one], indices[one], 7, network), together[one])
        other = asked.apply(images, labels, indices, 8, network)
    assert torch.equal(other, together) == (kind == "fgsm")  # the only one that draws nothing


def test_settings_of_an_attack_have_the_same_start() -> None:
    still = [ask([f"pgd:eps={eps},step=1e-9,steps=1"])[0] for eps in (0.01, 0.02)]
    images = torch.full((5, *SIZE), 0.5, dtype=torch.float64)
    first, second = (asked.apply(images, classes(), torch.arange(5), 0, linear()[0]) - images for asked in still)
    torch.testing.assert_close(second, 2 * first, atol=1e-8, rtol=0)


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "plain": small_resnet,
    "example-weighted": lambda: surgeon.convert(small_resnet(), "example-weighted:alpha=0.3"),
    "split": lambda: surgeon.convert(small_resnet(), "split"),
    "instance-aware": lambda: surgeon.convert(small_resnet(), "instance-aware:k=1"),
    "mode": lambda: surgeon.convert(small_resnet(), "mode"),
    "fused": lambda: surgeon.convert(small_resnet(BatchNormAct2d), "example-weighted:alpha=0.3"),
}


@pytest.mark.parametrize("kind", [*KINDS, pytest.param("auto-attack:eps=0.0001", marks=NEEDS_AUTO_ATTACK)])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_network_is_left_as_it_was(kind: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_auto_attack(kind, monkeypatch)
    model = NETWORKS[name]().train()
    model.fc.weight.requires_grad_(False)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter) if parameter.requires_grad else None
    wanted = [parameter.requires_grad for parameter in model.parameters()]
    before, states, trace = Snapshot(model), (torch.get_rng_state(), np.random.get_state()[1].copy()), sys.gettrace()
    condition = ConditionMaker().make(ask([kind])[0], PLAIN, model)
    assert condition is not None
    with torch.inference_mode():  # as in the engine
        given = batch()
        found = condition(given).images
        assert (found != given.images).any() or kind.startswith("auto-attack")
    before.assert_unchanged()
    assert [parameter.requires_grad for parameter in model.parameters()] == wanted
    assert all(torch.equal(p.grad, torch.ones_like(p)) for p in model.parameters() if p.grad is not None)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (np.random.get_state()[1] == states[1]).all()
    assert sys.gettrace() is trace


@pytest.mark.parametrize("name", NETWORKS)
def test_converted_networks_give_the_gradients_of_their_outputs(name: str) -> None:
    model = NETWORKS[name]().double()
    images, labels = pictures(2, (3, 8, 8)), classes(2)
    with attacked(model, PLAIN, torch.device("cpu")) as network:
        slope = ascent.gradient(network, images, labels)
        direction = pictures(2, (3, 8, 8)) - 0.5
        with torch.no_grad():
            above, below = (
                ascent.log_odds_against(network(images + sign * 1e-7 * direction), labels).sum() for sign in (1, -1)
            )
    assert float((slope * direction).sum()) == pytest.approx(float((above - below) / 2e-7), rel=1e-5)


@pytest.mark.parametrize("name", ["example-weighted", "instance-aware"])
def test_gradients_do_not_depend_on_the_kernels(name: str) -> None:
    """In float32 and channels last, where a forward without gradients takes the compiled kernels."""
    model, double = NETWORKS[name](), NETWORKS[name]().double()
    images = pictures(3, (3, 8, 8), torch.float32).contiguous(memory_format=torch.channels_last)
    slopes = []
    for each, pixels in ((model, images), (double, images.double())):
        with attacked(each, PLAIN, torch.device("cpu")) as network:
            slopes.append(ascent.gradient(network, pixels, classes(3)).double())
    torch.testing.assert_close(slopes[0], slopes[1], rtol=1e-3, atol=1e-4)


def test_a_network_whose_alpha_was_set_in_inference_mode_is_attacked_at_that_alpha() -> None:
    model, there = (surgeon.convert(small_resnet(), "example-weighted") for _ in range(2))
    there = surgeon.convert(small_resnet(), "example-weighted:alpha=0.3")
    found = []
    for each in (model, there):
        condition = ConditionMaker().make(ask(["pgd:steps=2"])[0], PLAIN, each)
        assert condition is not None
        with torch.inference_mode():
            if each is model:
                AlphaAxis(model).set(0.3)
            found.append(condition(batch()).images)
    assert torch.equal(*found)


class Detached(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.network, self.how = small_resnet(), how

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "constant":
            return torch.zeros(len(x), CLASSES)
        return self.network((x * 8).round() / 8) if self.how == "rounded" else self.network(x).detach()


@pytest.mark.parametrize("kind", ["fgsm", "pgd", pytest.param("auto-attack", marks=NEEDS_AUTO_ATTACK)])
@pytest.mark.parametrize("how", ["detached", "rounded", "constant"])
def test_a_network_without_gradients_is_refused(kind: str, how: str) -> None:
    condition = ConditionMaker().make(ask([kind])[0], PLAIN, Detached(how))
    assert condition is not None
    with (
        pytest.raises(SurgeonError, match="gives no gradients with respect to its images") as caught,
        torch.inference_mode(),
    ):
        condition(batch())
    assert "spsa" in caught.value.hint


def test_a_network_without_gradients_is_attacked_without_them() -> None:
    condition = ConditionMaker().make(ask(["spsa:steps=1,samples=2"])[0], PLAIN, Detached("detached"))
    assert condition is not None
    assert (condition(batch()).images != batch().images).any()


def test_examples_of_a_source_are_made_once_and_on_the_source() -> None:
    model, preprocessing, pixels, labels = digits(20)
    other = surgeon.convert(open_model("digits-resnet8").model, "example-weighted:alpha=0.3")
    maker, (white,), (black,) = ConditionMaker(), ask(["fgsm"]), ask(["fgsm:source=digits-resnet8"])
    assert black.name == "fgsm:source=digits-resnet8"
    given = Batch(surgeon.measuring.conditions.renormalise(pixels, preprocessing), labels, torch.arange(20))
    conditions = [maker.make(white, preprocessing, model), maker.make(black, preprocessing, other)]
    assert maker.make(black, preprocessing, model) is conditions[1]
    direct, transferred, own = (
        condition(given).images for condition in (*conditions, maker.make(white, preprocessing, other)) if condition
    )
    assert torch.equal(direct, transferred)
    assert not torch.equal(own, transferred)
    with pytest.raises(SurgeonError, match="The source 'digits-resnet8' takes images of 1x8x8") as caught:
        maker.make(black, PLAIN, small_resnet())
    assert "same size" in caught.value.hint
    with pytest.raises(SurgeonError, match="nowhere"):
        maker.make(ask(["fgsm:source=nowhere"])[0], preprocessing, model)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("pgd:eps=-0.1", "eps='-0.1': Input should be greater than or equal to 0"),
        ("fgsm:eps=8", "eps='8': Input should be less than or equal to 1"),
        ("pgd:eps=nan", "eps='nan'"),
        ("pgd:eps=8/0", "eps='8/0': Input should be a valid number"),
        ("pgd:step=0", "step='0': Input should be greater than 0"),
        ("pgd:steps=0", "steps='0': Input should be greater than or equal to 1"),
        ("spsa:samples=0", "samples='0': Input should be greater than or equal to 1"),
        ("pgd:steps=2.5", "steps='2.5'"),
    ],
)
def test_wrong_options_get_a_sentence(spec: str, says: str) -> None:
    with pytest.raises(SurgeonError, match="cannot take") as caught:
        ask([spec])
    assert says in caught.value.message


def test_steps_are_in_proportion_to_eps_unless_given() -> None:
    lengths = {spec: ask([spec])[0].config.length for spec in ("pgd", "pgd:eps=12/255", "spsa:step=0.01", "pgd:eps=0")}
    assert lengths == pytest.approx(
        {"pgd": 0.0078, "pgd:eps=12/255": 0.0122, "spsa:step=0.01": 0.01, "pgd:eps=0": 0}, abs=1e-4
    )


def test_distances_may_be_fractions() -> None:
    assert [each.name for each in ask(["pgd:eps=8/255,step=2/255", "pgd:step=0.007843,eps=0.031373"])] == [
        "pgd:eps=0.031373,step=0.007843"
    ]


def test_without_a_network_there_is_a_sentence() -> None:
    (asked,) = ask(["pgd"])
    with pytest.raises(SurgeonError, match="'pgd' attacks a network, and none was given"):
        asked.apply(pictures(), classes(), torch.arange(5))


def test_without_the_extra_there_is_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyautoattack", None)
    (asked,) = ask(["auto-attack"])
    with pytest.raises(SurgeonError, match="needs the package pyautoattack") as caught:
        asked.apply(pictures(), classes(), torch.arange(5), 0, linear()[0])
    assert caught.value.hint == "Run: pip install 'norm-surgeon[attacks]'"


def shorten_auto_attack(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few steps of each of its attacks, where only the frame about them is tested."""
    if not kind.startswith("auto-attack"):
        return
    import pyautoattack

    original = pyautoattack.AutoAttack

    def short(*args: Any, **kwargs: Any) -> Any:
        made = original(*args, **kwargs)
        made.apgd.n_iter = made.apgd_targeted.n_iter = made.fab.n_iter = made.square.n_queries = 3
        return made

    monkeypatch.setattr(pyautoattack, "AutoAttack", short)


@NEEDS_AUTO_ATTACK
@pytest.mark.parametrize(("outputs", "eps"), [(2, 0.05), (3, 0.2), (4, 0.05)])
def test_auto_attack_finds_the_optimum_of_linear_networks(outputs: int, eps: float) -> None:
    logits, weight, bias = linear(outputs)
    images = pictures(6, dtype=torch.float32)
    narrow = lambda x: logits(x.double()).float()  # noqa: E731
    labels = narrow(images).argmax(1)
    (asked,) = ask([f"auto-attack:eps={eps}"])
    found = asked.apply(images, labels, torch.arange(6), 0, narrow)
    assert (found - images).abs().max() <= eps + 1e-6
    best = []  # the largest margin of any wrong class over the box, which linear functions take at a corner
    for image, label in zip(images.double().numpy(), labels.tolist(), strict=True):
        others = [other for other in range(outputs) if other != label]
        corners = [np.clip(image + eps * np.sign((weight[o] - weight[label]).reshape(SIZE)), 0, 1) for o in others]
        scores = [weight @ corner.ravel() + bias for corner in corners]
        best.append(max(score[o] - score[label] for o, score in zip(others, scores, strict=True)))
    fooled = narrow(found).argmax(1).ne(labels).numpy()
    assert (fooled == (np.array(best) > 0)).all()
    assert 0 < fooled.sum() < len(fooled)
    assert torch.equal(asked.apply(images, labels, torch.arange(6), 0, narrow), found)
    (nothing,) = ask(["auto-attack:eps=0"])
    assert torch.equal(nothing.apply(images, labels, torch.arange(6), 0, narrow), images)


@pytest.mark.skipif(importlib.util.find_spec("foolbox") is None, reason="foolbox is not installed")
def test_foolbox_finds_the_same() -> None:
    import foolbox

    model = small_resnet()
    wrapped = foolbox.PyTorchModel(
        model, bounds=(0, 1), device="cpu", preprocessing={"mean": PLAIN.mean, "std": PLAIN.std, "axis": -3}
    )  # fmt: skip
    images, labels, eps, step, steps = pictures(5, (3, 8, 8), torch.float32), classes(), 0.05, 0.01, 9
    fast = foolbox.attacks.FGSM(random_start=False)
    iterated = foolbox.attacks.LinfPGD(abs_stepsize=step, steps=steps, random_start=False)
    with attacked(model, PLAIN, torch.device("cpu")) as network:
        ours = ascent.fgsm(network, images, labels, eps=eps)
        reached = images
        for _ in range(steps):  # foolbox draws its start from a generator of its own: here there is none
            reached = ascent.projected(reached + step * ascent.gradient(network, reached, labels).sign(), images, eps)
    theirs, theirs_iterated = (
        attack.run(wrapped, images, foolbox.criteria.Misclassification(labels), epsilon=eps)
        for attack in (fast, iterated)
    )
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)
    assert ((reached - theirs_iterated).abs() < 1e-6).float().mean() > 0.99  # signs of gradients about 0
