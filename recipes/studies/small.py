"""The small recipes on 20 digits per class against plain training, over several seeds.

    python recipes/studies/small.py -o runs/small [--seeds 5]

Every run is a command of surgeon's own; what is finished already is not run again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

BASELINE = "baseline-small"
RECIPES = (BASELINE, "moex-small", "moex-cutmix-small", "weak-augment-small", "cnsn-small", "mode-norm-small",
           "vh-mixup-small", "four-things-small", "snapshot-small")  # fmt: skip
Tested = tuple[np.ndarray, np.ndarray]
"""Whether each test image is classified correctly, and its cross-entropy."""


def surgeon(*arguments: object) -> None:
    subprocess.run([sys.executable, "-m", "surgeon", *map(str, arguments)], check=True, capture_output=True)


def tested(logits: torch.Tensor, labels: torch.Tensor) -> Tested:
    losses = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    return (logits.argmax(1) == labels).double().numpy(), losses.double().numpy()


def run(recipe: str, seed: int, root: Path) -> Tested:
    folder = root / f"{recipe}-{seed}"
    if not (folder / "result.json").is_file():
        shared = ("--no-pretrained", "--data", "digits", "--workers", 0, "--seed", seed, "-o", folder, "--overwrite")
        surgeon("finetune", "digits-resnet8", "--recipe", recipe, *shared)
    found = load_file(folder / "test-logits.safetensors")
    members = sorted((folder / "snapshots").glob("*"))
    for member in members:
        if not (file := folder / f"logits-{member.name}.safetensors").is_file():
            surgeon("eval", member, "--data", "digits", "--split", "test", "--save-logits", file)
    logits = [load_file(folder / f"logits-{member.name}.safetensors")["logits"] for member in members]
    return tested(torch.stack(logits).mean(0) if logits else found["logits"], found["labels"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    results = {recipe: [run(recipe, seed, given.output) for seed in range(given.seeds)] for recipe in RECIPES}
    table = {}
    for recipe, seeds in results.items():
        row = {}
        for number, measure in enumerate(("accuracy", "cross-entropy")):
            values = np.array([each[number].mean() for each in seeds])
            differences = values - np.array([each[number].mean() for each in results[BASELINE]])
            error = float(differences.std(ddof=1)) / len(seeds) ** 0.5
            row[measure] = {"mean": float(values.mean()), "difference": float(differences.mean()), "error": error}
        table[recipe] = row
        accuracy, loss = {k: 100 * v for k, v in row["accuracy"].items()}, row["cross-entropy"]
        print(
            f"{recipe:20} {accuracy['mean']:6.2f}%  {accuracy['difference']:+.2f} ± {accuracy['error']:.2f}"
            f"   cross-entropy {loss['mean']:.4f}  {loss['difference']:+.4f} ± {loss['error']:.4f}"
        )
    (given.output / "table.json").write_text(json.dumps(table, indent=2) + "\n")


if __name__ == "__main__":
    main()
