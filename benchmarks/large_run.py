"""What a sweep over ImageNet and a study on it take, computed from measured parts and assumed speeds of the network.

    python benchmarks/large_run.py --rate 4000 --training-rate 1200 --devices 4 --cores 16

Decoding, scoring and bytes per sample were measured (defaults; docs/machines.md says how). How many images per second
the network predicts and trains on is yours to give: `surgeon eval` and `surgeon finetune` show both.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from surgeon.measuring.shortcut import SHARE

BYTES_OF_INDEX, BYTES_OF_SCORES, BYTES_OF_JOURNAL = 113, 48, 29


@dataclass(frozen=True)
class Machine:
    """Where it runs.

    Args:
        name: What to call it.
        rate: Images per second that the network predicts, on one device; of a CPU, on all its cores.
        training_rate: The same in training.
        devices: GPUs; each has a process of its own.
        cores: CPU cores, which decode.
        shared: Whether the network runs on the cores that decode.
    """

    name: str
    rate: float
    training_rate: float
    devices: int
    cores: int
    shared: bool = False


MACHINES = (
    Machine("1 GPU, 8 cores", 2500, 800, 1, 8),
    Machine("8 GPUs, 64 cores", 2500, 800, 8, 64),
    Machine("CPU, 2 cores", 30, 8, 1, 2, shared=True),
)
"""ResNet-50 at 224 px: the rates of the GPU are assumed, those of the CPU follow from 65 ms on one core."""


@dataclass(frozen=True)
class Parts:
    """Milliseconds on one core, for each image."""

    decode: float
    decode_training: float
    score: float


def measuring_hours(images: int, passes: float, machine: Machine, parts: Parts) -> float:
    """While the network predicts, other threads decode; scores are computed in between."""
    decoding = images * parts.decode / 1000 / machine.cores
    predicting = images * passes * (1 / machine.rate + parts.score / 1000) / machine.devices
    return (decoding + predicting if machine.shared else max(decoding, predicting)) / 3600


def training_hours(images: int, epochs: int, machine: Machine, parts: Parts) -> float:
    """Of one run on all devices."""
    decoding = images * epochs * parts.decode_training / 1000 / machine.cores
    learning = images * epochs / machine.training_rate / machine.devices
    return (decoding + learning if machine.shared else max(decoding, learning)) / 3600


RACE = 3 * SHARE + (2 - SHARE)
"""Passes of an image in a race over ten or more alphas from 0 on: three values on the first share of the images, then
the original on the rest, and the challenger on all."""


def table(arguments: argparse.Namespace, machines: Sequence[Machine]) -> list[str]:
    images, training, values = arguments.images, arguments.training_images, arguments.values
    parts = Parts(arguments.decode, arguments.decode_training, arguments.score)
    runs, epochs = arguments.runs, arguments.epochs
    rows = {
        f"evaluation, {images:,} images": lambda machine: measuring_hours(images, 1, machine, parts),
        f"sweep of {values} values, grid": lambda machine: measuring_hours(images, values, machine, parts),
        f"the same over alpha, race ({RACE:.1f} passes)": lambda machine: measuring_hours(images, RACE, machine, parts),
        f"study, {runs} runs of {epochs} epochs, {training:,} images": lambda machine: (
            runs * training_hours(training, epochs, machine, parts)
        ),
    }
    lines = [f"| | {' | '.join(machine.name for machine in machines)} |", f"|---|{'---|' * len(machines)}"]
    for name, hours in rows.items():
        lines.append(f"| {name} | {' | '.join(in_words(hours(machine)) for machine in machines)} |")
    memory = (images * (BYTES_OF_INDEX + values * BYTES_OF_SCORES) / 2**20, images * values * BYTES_OF_JOURNAL / 2**20)
    lines.append(
        f"\nThe grid keeps at most {memory[0]:,.0f} MiB of index and scores, and {memory[1]:,.0f} MiB of journal."
    )
    return lines


def in_words(hours: float) -> str:
    if hours < 1 / 60:
        return f"{3600 * hours:.0f} s"
    if hours < 2:
        return f"{60 * hours:.0f} min"
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:,.1f} days"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = {"images": 50_000, "values": 21, "training-images": 1_281_167, "runs": 10, "epochs": 10}
    numbers |= {"devices": 1, "cores": 8}
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, number in {"decode": 0.53, "decode-training": 1.53, "score": 0.086}.items():
        parser.add_argument(f"--{name}", type=float, default=number, help="milliseconds of one core for an image")
    parser.add_argument(
        "--rate", type=float, help="images per second that one device predicts; default: three machines"
    )
    parser.add_argument("--training-rate", type=float, help="the same in training; default: a third of it")
    arguments = parser.parse_args()
    machines: Sequence[Machine] = MACHINES
    if arguments.rate:
        learning = arguments.training_rate or arguments.rate / 3
        machines = (Machine("yours", arguments.rate, learning, arguments.devices, arguments.cores),)
    print("\n".join(table(arguments, machines)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
