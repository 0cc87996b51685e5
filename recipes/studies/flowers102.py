"""Flowers-102 with ten images per class: what each improvement adds to plain fine-tuning, seed by seed.

    python recipes/studies/flowers102.py --weights FILE --data FOLDER -o runs/flowers [--seeds 3]

Every row is a command of surgeon's own; what is finished already is not run again. The table at the end compares
each row with plain fine-tuning: over seeds, and with an interval over the test images (paired, averaged over seeds).
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

MODEL = "tf_efficientnet_lite0"
UNMIXED = ["--set", "augment=standard:scale=0.35", "--set", "unmixed_epochs=0"]
RUNS = {
    "linear-probe": ["--recipe", "transfer-plain-small", "--freeze-backbone"],
    "plain": ["--recipe", "transfer-plain-small"],
    "four": ["--recipe", "flowers102-small", *UNMIXED],
    "vh-mixup": ["--recipe", "flowers102-small"],
    "snapshots": ["--recipe", "flowers102-small", *UNMIXED, "--snapshots", "3"],
}
CANDIDATES = ("plain", "four", "vh-mixup", "snapshots")
"""Runs among whose networks validation images choose those to average."""


def surgeon(*arguments: object) -> None:
    command = [sys.executable, "-m", "surgeon", *map(str, arguments)]
    print("$ surgeon", *arguments, flush=True)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def train(name: str, seed: int, given: argparse.Namespace) -> Path:
    folder = given.output / f"{name.replace(' ', '-')}-{seed}"
    if not (folder / "result.json").is_file():
        resume = ["--resume"] if (folder / "state.pt").is_file() else []
        begun = ["--overwrite"] if folder.exists() and not resume else []
        where = ["--weights", given.weights, "--data", given.data, "--seed", seed, "-o", folder]
        surgeon("finetune", MODEL, *where, *RUNS[name], *resume, *begun)
    return folder


def chosen(candidates: list[Path], seed: int, given: argparse.Namespace) -> list[Path]:
    """Those that make the average better on the validation images, the best one first."""
    folder = given.output / f"chosen-{seed}"
    if not (folder / "result.json").is_file():
        surgeon("ensemble", *candidates, "--data", given.data, "--greedy", "--tta", "flip", "-o", folder)
    choice = json.loads((folder / "result.json").read_text(encoding="utf-8"))["choice"]
    return [Path(step["member"]) for step in choice["steps"] if step["kept"]]


def correct(members: list[Path], given: argparse.Namespace, tta: str | None) -> np.ndarray:
    """Whether the mean of the members' logits is right, for each test image."""
    found = []
    for member in members:
        file = member.parent / f"logits-{member.name}-{tta}.safetensors"
        if not file.is_file():
            views = ["--tta", tta] if tta else []
            surgeon("eval", member, "--data", given.data, "--split", "test", "--save-logits", file, *views)
        found.append(load_file(file))
    mean = torch.stack([each["logits"] for each in found]).mean(0)
    return (mean.argmax(1) == found[0]["labels"]).double().numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    right: dict[str, list[np.ndarray]] = {}
    for seed in range(given.seeds):
        folders = {name: train(name, seed, given) for name in RUNS}
        members = {name: [folder / "checkpoint"] for name, folder in folders.items()}
        members["mean of three snapshots"] = sorted((folders["snapshots"] / "snapshots").glob("*"))
        members["chosen"] = chosen([folders[name] / "checkpoint" for name in CANDIDATES], seed, given)
        for name, of_row in members.items():
            for tta in (None, "flip"):
                row = name + (", and its mirror image" if tta else "")
                right.setdefault(row, []).append(correct(of_row, given, tta))
    if given.seeds > 1:
        two = [given.output / f"plain-{seed}" / "checkpoint" for seed in range(2)]
        right["two plain networks, and their mirror images"] = [correct(two, given, "flip")]
    rows = {}
    plain = np.mean(right["plain"], axis=0)
    for name, seeds in right.items():
        accuracies = [float(each.mean()) for each in seeds]
        gains = np.mean(seeds, axis=0) - plain
        gain, half = float(gains.mean()), 1.96 * float(gains.std(ddof=1)) / len(gains) ** 0.5
        rows[name] = {
            "accuracies": accuracies,
            "gain": gain,
            "low": gain - half,
            "high": gain + half,
        }
        print(
            f"{name:44} {100 * np.mean(accuracies):6.2f}%  seeds {' '.join(f'{100 * a:.2f}' for a in accuracies)}"
            f"  gain {100 * gain:+.2f} ({100 * (gain - half):+.2f} to {100 * (gain + half):+.2f})"
        )
    (given.output / "table.json").write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
