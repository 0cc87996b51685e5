"""Attacks on a real network: as strong as they are known to be, and no sign of masked gradients."""

from __future__ import annotations

from pathlib import Path

import torch
from torchvision.transforms.functional import pil_to_tensor

from surgeon.checkpoint import open_model
from surgeon.conditions.attacks.masking import Expectation, masking_checks
from surgeon.conditions.attacks.network import attacked
from surgeon.conditions.base import ask
from tests.real.conftest import first_images

IMAGES = 50
SPECS = ("clean", "pgd:eps=0", "fgsm:eps=0.004", "pgd:eps=0.004,steps=10", "pgd:eps=0.004,steps=20", "pgd:steps=10")


def test_an_ordinary_network_falls_to_pgd_without_a_sign_of_masking(shared: Path) -> None:
    loaded = open_model("cifar-resnet20", weights=shared / "data/weights/resnet20-12fca82f.th")
    pixels, labels = first_images("cifar10/test-*.parquet", IMAGES, lambda image: pil_to_tensor(image).float() / 255)
    assert loaded.origin.preprocessing is not None
    right = {}
    with attacked(loaded.model, loaded.origin.preprocessing, torch.device("cpu")) as network:
        for spec in SPECS:
            seen = ask([spec])[0].apply(pixels, labels, torch.arange(IMAGES), 0, network)
            with torch.no_grad():
                right[ask([spec])[0].name] = (network(seen).argmax(1) == labels).tolist()
    accuracy = {name: sum(each) / IMAGES for name, each in right.items()}
    assert accuracy["clean"] > 0.85
    assert accuracy["pgd:steps=10"] < 0.05
    assert accuracy["pgd:eps=0.004"] < accuracy["fgsm:eps=0.004"] < accuracy["clean"] - 0.2
    checks = masking_checks(right)
    assert {check.expectation for check in checks} >= {
        Expectation.NOTHING_CHANGED, Expectation.LARGER_EPS, Expectation.MORE_STEPS, Expectation.ITERATED,
    }  # fmt: skip
    assert all(check.passed for check in checks)
