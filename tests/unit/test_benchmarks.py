"""Every benchmark runs: here on sizes at which its figures mean nothing, so that a crash is not found years later."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import datasets
import pytest
import torch
from PIL import Image

from surgeon.checkpoint import open_model
from surgeon.data.digits import load_digits
from surgeon.models.sources import load_model
from tests.cli.running import done

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks"
HELPERS = {"timing", "real_data", "shift_tables", "gate", "ledger", "verdicts", "resident"}
LARGE = {
    "norm_layers": "norm_overhead measures whole networks",
    "gpu": "needs a GPU",
    "timm_models": "a longer study",
    "interval_coverage": "a longer study",
    "race_regret": "a longer study",
    "shift_study": "a longer study",
    "instance_aware": "a longer study",
    "cifar_alpha": "needs its arguments",
    "large_run": "computes, and measures nothing",
    "robustness_cost": "needs its arguments",
}
"""What `make bench` leaves out."""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Images of ten classes, as those of CIFAR-10 are stored."""
    pictures = [Image.new("RGB", (32, 32), (6 * number, 255 - 6 * number, 100)) for number in range(40)]
    rows = {"image": pictures, "label": [number % 10 for number in range(40)]}
    kinds = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    (tmp_path / "data").mkdir()
    datasets.Dataset.from_dict(rows, kinds).to_parquet(str(tmp_path / "data" / "test-0.parquet"))
    return tmp_path / "data"


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    torch.save(load_model("cifar-resnet20", pretrained=False).model.state_dict(), tmp_path / "resnet20.th")
    return tmp_path / "resnet20.th"


def script(name: str, monkeypatch: pytest.MonkeyPatch, **constants: Any) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    specification = importlib.util.spec_from_file_location(f"benchmark_{name}", FOLDER / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, specification.name, module)
    specification.loader.exec_module(module)
    for constant, value in constants.items():
        monkeypatch.setattr(module, constant, value, raising=constant != "leave_unless_there")
    monkeypatch.setattr(sys, "argv", [f"{name}.py"])
    return module


def ran(module: ModuleType, capsys: pytest.CaptureFixture[str]) -> str:
    """What it prints; whether limits are kept says nothing at this size."""
    assert module.main() in (0, 1)
    return capsys.readouterr().out


def test_norm_overhead(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {"AIMS": {"test_resnet": 1.03}, "SIZE": 32, "BATCHES": {1: 1}, "THREADS": (1,)}
    printed = ran(script("norm_overhead", monkeypatch, **sizes), capsys)
    assert "aim 1.03x" in printed
    assert "channels-last" in printed
    assert "instance-aware, k 8" in printed


def test_norm_layers(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    module = script("norm_layers", monkeypatch, MODELS=("test_resnet",), SIZE=32, BATCHES=(1,), ROUNDS=1)
    threads = torch.get_num_threads()
    try:
        assert "channels-last, batch 1: norm layers example-weighted" in ran(module, capsys)
    finally:
        torch.set_num_threads(threads)


def test_instance_aware(
    data: Path, weights: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = {"IMAGES": 4, "CIFAR10": data, "RESNET20": weights, "leave_unless_there": lambda: None}
    assert "JPEG, quality 20" in ran(script("instance_aware", monkeypatch, **sizes), capsys)


def test_shift_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    module = script("shift_study", monkeypatch, leave_unless_there=lambda: None)
    loaded = open_model("digits-resnet8")
    images = module.Images(*load_digits("test")).at(slice(60))
    methods = [module.Method(), module.Method(prior=64), module.Method("example-weighted:alpha=0.1", 64, tent=True)]
    trials = [
        module.Trial("digits", kind, method, loaded.model, module.both_ways(images), 30, 30)
        for kind in ("snow-1", "snow-2", module.CLEAN)
        for method in methods
    ]
    monkeypatch.setattr(module, "STUDIES", {"tiny": lambda _: iter(trials)})
    printed = []
    for _ in range(2):  # the second one reads what the first has measured
        monkeypatch.setattr(sys, "argv", ["shift_study.py", "tiny", "-o", str(tmp_path)])
        module.main()
        printed.append(capsys.readouterr().out)
    assert printed[0].endswith(printed[1])
    assert "| | all corruptions | severity 1 | severity 2 | none |" in printed[1]
    assert len((tmp_path / "tiny.jsonl").read_text().splitlines()) == len(trials)


def test_ghost_training(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    module = script("ghost_training", monkeypatch, NETWORKS=(("cifar-resnet20", 32, 8, 1),))
    printed = ran(module, capsys)
    assert "ghost:size=16" in printed
    assert "at most 1.15x" in printed


def test_pgd_training(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {"NETWORKS": (("cifar-resnet8", 32, 4, 1), ("mobilenetv3_small_050", 32, 4, 1)), "STEPS": (1, 2)}
    printed = ran(script("pgd_training", monkeypatch, **sizes), capsys)
    assert printed.count("3 plain steps") == 2
    assert printed.count("at most 1.05x") == 4


def test_training_cost(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    module = script("training_cost", monkeypatch, BATCH=16, SIZE=8, ROUNDS=1)
    assert "selfnorm" in ran(module, capsys)


def test_mixing_speed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    module = script("mixing_speed", monkeypatch, BATCHES={(4, 3, 8, 8): 10}, ROUNDS=1, SEEDS=1)
    assert "torchvision cutmix" in ran(module, capsys)


def test_corruptions_speed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    module = script("corruptions_speed", monkeypatch, LARGE=(1, 66), SMALL=(1, 32), ROUNDS=0)
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)  # noqa: ARG005
    threads = torch.get_num_threads()
    try:
        assert "ResNet-20 takes" in ran(module, capsys)
    finally:
        torch.set_num_threads(threads)


def test_sweep_cost(
    data: Path, weights: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = {
        "IMAGES": 10,
        "VALUES": 2,
        "IMAGES_WITH_VIEWS": 1,
        "METRICS": ("accuracy",),
        "CIFAR10": data,
        "RESNET20": weights,
    }
    module = script("sweep_cost", monkeypatch, **sizes, leave_unless_there=lambda: None)
    assert "race chooses" in ran(module, capsys)


def test_lambda_cost(
    data: Path, weights: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from surgeon.measuring.preparation import InferenceRequest

    request = InferenceRequest(data=str(data), split="test", limit=40)
    sizes = {"MODEL": "cifar-resnet20", "IMAGES": 40, "VALUES": 2, "ROUNDS": 1, "REQUEST": request, "REAL": True}
    printed = ran(script("lambda_cost", monkeypatch, **sizes, RESNET20=weights), capsys)
    assert "2.00x  (at most 2.00x: ok)" in printed


def test_recalibrate_cost(
    data: Path, weights: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from surgeon.measuring.preparation import InferenceRequest

    request = InferenceRequest(data=str(data), split="test", limit=40)
    sizes = {"MODEL": "cifar-resnet20", "IMAGES": 40, "ROUNDS": 1, "REQUEST": request, "REAL": True}
    module = script("recalibrate_cost", monkeypatch, **sizes, RESNET20=weights)
    assert "at most 1.50x" in ran(module, capsys)


def test_eval_speed(
    data: Path, weights: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import timm

    torch.save(timm.create_model("test_resnet", num_classes=10).state_dict(), weights)
    monkeypatch.setattr(timm, "create_model", _with_ten_classes(timm.create_model))
    sizes = {"MODEL": "test_resnet", "IMAGES": 8, "WORKERS": 1, "ROUNDS": 1, "IMAGENET": data, "LITE0": weights}
    module = script("eval_speed", monkeypatch, **sizes, SPLIT="test", leave_unless_there=lambda: None)
    monkeypatch.setitem(module.CASES, "32 px", module.Case("test_resnet", weights, data, "test", 8))
    monkeypatch.setattr(module, "RATIOS", {"32 px, 1 thread": lambda: module.of_bare("32 px", torch.get_num_threads())})
    monkeypatch.setattr("surgeon.cli.host.keep_heap", lambda: None)
    monkeypatch.setattr(module, "in_own_process", lambda name: (module.ALTERNATIVES | module.RATIOS)[name]())
    printed = ran(module, capsys)
    assert "at least 2.50x" in printed
    assert "shares of the bare network" in printed


def _with_ten_classes(create: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments, **options: create(*arguments, **{"num_classes": 10, **options})


def test_finetune_speed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {"MODEL": "test_resnet", "SIZE": 32, "BATCH": 8, "IMAGES": 20, "ROUNDS": 1, "EPOCHS": 1, "CLASSES": 2}
    module = script("finetune_speed", monkeypatch, **sizes)
    monkeypatch.setattr(
        module, "InferenceRequest", partial(module.InferenceRequest, workers=0)
    )  # to start processes takes seconds
    alone = {"num_workers": 0, "persistent_workers": False}
    create_loader = module.create_loader
    monkeypatch.setattr(module, "create_loader", lambda *images, **how: create_loader(*images, **how | alone))
    monkeypatch.setattr(module, "in_own_process", lambda name, folder: module.ALTERNATIVES[name](Path(folder)))
    monkeypatch.setattr(module, "command", lambda *_: [sys.executable, "-c", "pass"])  # whose peak is looked at
    assert "surgeon finetune" in ran(module, capsys)


def test_memory(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    module = script("memory", monkeypatch, FEW=10, MANY=20)

    def in_process(step: str, path: Path) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            module.STEPS[step](path)
        return printed.getvalue()

    monkeypatch.setattr(module, "in_process", in_process)
    assert "peak resident memory" in ran(module, capsys)


def test_scale(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    module = script("scale", monkeypatch, SIZES=(300, 600), BATCH=64)

    def cost(run: Callable[[], object]) -> tuple[float, float]:
        run()
        return 1.0, 1.0

    monkeypatch.setattr(module, "cost", cost)
    threads = torch.get_num_threads()
    try:
        printed = ran(module, capsys)
    finally:
        torch.set_num_threads(threads)
    assert "a sample among 600 against one among 300" in printed
    assert "0.50x  (at most 1.30x: ok)" in printed
    assert "journal on the disk" in printed


def test_large_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    module = script("large_run", monkeypatch)
    given = {"images": 3_600_000, "values": 2, "rate": 1000, "score": 0, "decode": 0.001, "devices": 2}
    options = [f"--{name}={value}" for name, value in given.items()]
    monkeypatch.setattr(sys, "argv", ["large_run.py", *options])
    printed = ran(module, capsys)
    assert "| evaluation, 3,600,000 images | 30 min |" in printed
    assert "| sweep of 2 values, grid | 60 min |" in printed


def test_startup(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    module = script("startup", monkeypatch)
    monkeypatch.chdir(tmp_path)
    for name in [*module.LIMITS, " ".join(module.CONVERT).replace("resnet152", "test_resnet")]:
        if name not in ("demo", "import surgeon"):  # the demo trains nothing smaller, and has tests of its own
            done(*name.split())
    monkeypatch.setattr(module, "seconds", lambda *_: 0.1)
    printed = ran(module, capsys)
    assert "at most 30 s: ok" in printed
    assert "1.00x  (at most 1.50x: ok)" in printed


def test_cifar_alpha(
    data: Path, weights: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = script("cifar_alpha", monkeypatch, FILES={"cifar-resnet20": weights.name}, ALPHAS=(0.0, 0.1))
    module.main(weights.parent, data / "test-0.parquet")
    assert capsys.readouterr().out.count("\n") == 2


def test_interval_coverage(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    module = script("interval_coverage", monkeypatch)
    monkeypatch.setattr(module, "PAIRS", module.PAIRS[:1])
    monkeypatch.setattr(module, "SIZES", (50,))
    monkeypatch.setattr(sys, "argv", ["interval_coverage.py", "--samples", "2", "--images", "2000"])
    assert "worst of 1 pairs" in ran(module, capsys)


def test_race_regret(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    module = script("race_regret", monkeypatch, SIZES=(300,))
    monkeypatch.setattr(module.contest, "RACE", module.contest.RACE)  # which it changes
    monkeypatch.setattr(sys, "argv", ["race_regret.py", "--samples", "1"])
    assert "rounds of shares alone" in ran(module, capsys)


def test_timm_models(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """All that timm asks, of its smallest network, which is to answer all of it."""
    module = script("timm_models", monkeypatch, SIZE=32)
    monkeypatch.setattr(sys, "argv", ["timm_models.py", "test_resnet"])
    assert module.main() == 0
    printed = capsys.readouterr().out
    assert "1 architectures, 10 checks that pass unconverted" in printed
    assert "and by design 3" in printed


@pytest.mark.parametrize("there", [True, False])
def test_gpu(there: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """On the CPU all of it runs; without a GPU it says so."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    small: dict[str, Any] = {"SIZE": 32, "BATCHES": (2,), "TRAINING_BATCH": 16, "ROUNDS": 1}
    few: dict[str, Any] = {"NETWORKS": ("test_resnet",), "PRECISIONS": (torch.float32,), "COMPILED": ()}
    module = script("gpu", monkeypatch, **(small | few | {"DEVICE": "cpu"} if there else {}))
    assert module.main() == (0 if there else 2)
    printed = capsys.readouterr().out
    assert ("ghost:size=16, Triton" in printed) == there
    assert ("There is no GPU" in printed) != there


# --- together -------------------------------------------------------------------------------------------


def names() -> set[str]:
    return {path.stem for path in FOLDER.glob("*.py")} - HELPERS


def test_robustness_cost(
    data: Path, weights: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = script("robustness_cost", monkeypatch)
    given = ["", "cifar-resnet20", "--data", str(data), "--weights", str(weights), "--limit", "10"]
    monkeypatch.setattr(sys, "argv", given)
    module.main()
    assert "76 conditions" in capsys.readouterr().out


def test_every_benchmark_has_a_test() -> None:
    assert {name for name in names() if f"test_{name}" not in globals()} == set()


def test_the_gate_runs_every_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = script("gate", monkeypatch)
    assert set(gate.SCRIPTS) == names() - set(LARGE)
    assert set(gate.IN_FAST) <= set(gate.SCRIPTS)
