"""Train the bundled digits model from its recipe."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import yaml
from torch.nn.functional import cross_entropy

import surgeon
from surgeon.data.digits import load_digits
from surgeon.models.origin import BaseWeights
from surgeon.models.sources import load_model


def train(recipe: dict) -> torch.nn.Module:
    loaded = load_model(recipe["architecture"], pretrained=False)
    model = surgeon.convert(loaded.model, recipe["rewrite"], inplace=True)
    images, labels = load_digits("train")
    options = dict(recipe["optimiser"])
    assert (options.pop("name"), recipe["schedule"]) == ("sgd", "one-cycle")
    optimiser = torch.optim.SGD(model.parameters(), **options)
    steps = len(images) // recipe["batch_size"]
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, options["lr"], total_steps=steps * recipe["epochs"])
    torch.manual_seed(recipe["seed"])
    model.train()
    for _ in range(recipe["epochs"]):
        for batch in torch.randperm(len(images)).split(recipe["batch_size"])[:steps]:
            if recipe["sort_batches_by_label"]:
                batch = batch[labels[batch].argsort(stable=True)]
            optimiser.zero_grad()
            cross_entropy(model(images[batch]), labels[batch]).backward()
            optimiser.step()
            schedule.step()
    return model.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    arguments = parser.parse_args()
    model = train(yaml.safe_load(arguments.recipe.read_text()))
    origin = model.origin.model_copy(update={"weights": BaseWeights(origin=f"recipes/scripts/{arguments.recipe.name}")})
    surgeon.save(model, arguments.output, origin=origin, overwrite=True)
    for split in ("validation", "test"):
        images, labels = load_digits(split)
        with torch.inference_mode():
            accuracy = (model(images).argmax(1) == labels).float().mean()
        print(f"{split} accuracy at alpha 0: {accuracy:.2%}")


if __name__ == "__main__":
    main()
