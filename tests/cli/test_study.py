"""`surgeon study`: whatever is killed or fails, the same command finishes what is missing, and nothing twice."""

from __future__ import annotations

import csv
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import surgeon
from tests.cli.running import command, document, done, invoke, refusal

TINY: dict[str, Any] = {
    "model": "digits-resnet8",
    "pretrained": False,
    "data": "digits",
    "recipe": {"epochs": 1, "train_images": 40, "batch_size": 20, "sweep": None},
    "variants": {"plain": None},
    "seeds": 1,
}
LONG = {"epochs": 4000, "train_images": 40, "batch_size": 20, "sweep": None, "validate_every": 4000}


def write(**changes: Any) -> Path:
    file = Path("mine.yaml")
    file.write_text(yaml.safe_dump({**TINY, **changes}))
    return file


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the command in a process of its own, which does not outlive the test."""
    processes = []

    def start(*arguments: str | Path) -> subprocess.Popen[str]:
        process = subprocess.Popen(command(*arguments), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def wait_for(reached: Callable[[], object]) -> None:
    deadline = time.monotonic() + 400  # of a busy machine
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def workers_of(folder: str) -> list[int]:
    """The processes that do the commands of a study, without those that decode images for them."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if b"surgeon.studies.worker" in words and any(str(Path(folder).absolute()).encode() in w for w in words):
                parents[int(entry.name)] = parent
    return [pid for pid, parent in parents.items() if parent not in parents]


def is_training(folder: str, run: str) -> bool:
    log = Path(folder, "logs", f"{run}.log")
    return log.exists() and "epochs of" in log.read_text()


def test_a_study_from_its_file_to_its_page_and_nothing_twice() -> None:
    file = write(
        variants={"plain": None, "ghost": {"bn": "ghost:size=5"}},
        evaluations={"test": None, "noisy": {"under": "gaussian-noise", "alpha": 0.1}, "val": {"split": "validation"}},
    )
    first = document("study", file, "-o", "out", "--jobs", "2")
    assert [run["state"] for run in first["runs"]] == ["finished", "finished"]
    assert {(row["variant"], row["evaluation"]) for row in first["rows"]} == {
        (variant, evaluation) for variant in ("plain", "ghost") for evaluation in ("test", "noisy", "val")
    }
    result = json.loads(Path("out/runs/plain-0/result.json").read_text())
    figures = {(row["variant"], row["evaluation"], row["metric"]): row["mean"] for row in first["rows"]}
    assert figures["plain", "test", "accuracy"] == result["test"]["accuracy"]
    assert figures["plain", "val", "accuracy"] == result["validation"]["accuracy"]
    assert result["recipe"]["seed"] == 0
    for name in ("report.html", "study.png", "result.json", "table.csv", "seeds.csv"):
        assert Path("out", name).stat().st_size > 0, name
    lines = list(csv.DictReader(Path("out/table.csv").read_text().splitlines()))
    assert {line["verdict"] for line in lines} == {"", "one seed: training noise unknown"}
    assert Path("out/report.html").read_text().count('class="dot seed"') == len(first["rows"])

    logs = {path: path.read_text() for path in Path("out/logs").glob("*.log")}
    assert document("study", file, "-o", "out") == first
    assert {path: path.read_text() for path in Path("out/logs").glob("*.log")} == logs
    assert document("study", "show", "out") == first
    assert "accuracy" in done("study", "show", "out").stdout
    plan = document("study", "plan", file, "-o", "out")
    assert (plan["finished"], plan["missing"], plan["seconds"]) == (2, [], 0)


@pytest.mark.long
def test_conditions_of_an_evaluation_are_those_of_eval() -> None:
    result = document("study", write(evaluations={"noisy": {"under": "gaussian-noise"}}), "-o", "out", "--jobs", "1")
    checked = document("eval", "out/runs/plain-0/checkpoint", "--data", "digits", "--under", "gaussian-noise")
    noisy = [one["metrics"]["accuracy"] for one in checked["under"]]
    assert result["rows"][0]["mean"] == pytest.approx(sum(noisy) / len(noisy), abs=1e-12)


def test_a_killed_study_ends_its_runs_and_goes_on(started: Callable[..., Any]) -> None:
    file = write(recipe=LONG)
    study = started("study", file, "-o", "out", "--jobs", "1")
    wait_for(lambda: is_training("out", "plain-0"))
    assert [run["state"] for run in document("study", "show", "out")["runs"]] == ["running"]
    assert "Another process is running the study" in refusal("study", file, "-o", "out", code=1)
    study.kill()
    # The run notices, saves where it is, and ends; the system lets go of its lock a moment after it has gone.
    wait_for(lambda: document("study", "show", "out")["runs"][0]["state"] == "unfinished")
    assert not workers_of("out")
    assert Path("out/runs/plain-0/state.pt").is_file()
    again = started("study", file, "-o", "out", "--jobs", "1")
    wait_for(lambda: "resumed at epoch" in Path("out/logs/plain-0.log").read_text())
    again.send_signal(signal.SIGINT)
    said = again.communicate(timeout=400)[1]
    assert again.returncode == 130
    assert f"To continue:\nsurgeon study {file} -o out" in said
    assert not workers_of("out")


@pytest.mark.long
def test_a_killed_worker_is_reported_the_others_go_on_and_it_is_finished_by_the_same_command(
    started: Callable[..., Any],
) -> None:
    file = write(variants={"plain": {"epochs": 150, "validate_every": 150}, "other": {"lr": 0.02}})
    study = started("study", file, "-o", "out", "--jobs", "1")
    wait_for(lambda: is_training("out", "plain-0"))
    (worker,) = workers_of("out")
    os.kill(worker, signal.SIGKILL)
    said = study.communicate(timeout=400)[1]
    assert study.returncode == 1
    assert "finetune was killed by SIGKILL" in said
    states = {run["name"]: run["state"] for run in document("study", "show", "out")["runs"]}
    assert states == {"plain-0": "failed", "other-0": "finished"}
    log = Path("out/logs/other-0.log").read_text()
    assert [run["state"] for run in document("study", file, "-o", "out", "--jobs", "1")["runs"]] == ["finished"] * 2
    assert Path("out/logs/other-0.log").read_text() == log


@pytest.mark.long
def test_a_run_that_cannot_write_fails_and_is_finished_once_there_is_room() -> None:
    """No file may become larger than the state of a run: what a full disk does, without one."""
    file = write()
    limited = subprocess.run(
        command("study", file, "-o", "out", "--jobs", "1"),
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000)),
    )
    assert limited.returncode == 1
    assert "plain-0  failed: finetune: Could not write" in limited.stderr
    assert document("study", file, "-o", "out", "--jobs", "1")["runs"][0]["state"] == "finished"


def test_a_failed_run_says_why() -> None:
    file = write(variants={"plain": None, "huge": {"batch_size": 4000}})
    outcome = invoke("study", file, "-o", "out", "--jobs", "2")
    assert outcome.code == 1
    assert "huge-0  failed: finetune: A batch of 4000 is larger than the 40 training images" in outcome.stderr
    assert "1 run of 2 failed: huge-0." in outcome.stderr
    assert "plain" in outcome.stdout


@pytest.mark.long
def test_runs_that_cannot_even_write_down_why_they_failed_count_as_failed() -> None:
    """As on a disk that an earlier run has filled."""
    file = write(seeds=2)
    assert invoke("study", file, "-o", "out", "--jobs", "1").code == 0
    for entry in ("runs/plain-1", "evaluations/plain-1"):
        shutil.rmtree(Path("out", entry), ignore_errors=True)
    for entry in ("logs/plain-1.log", "logs/plain-1.json"):
        Path("out", entry).unlink()
        Path("out", entry).mkdir()  # in whose place nothing can be written
    outcome = invoke("study", file, "-o", "out", "--jobs", "1")
    assert outcome.code == 1
    assert "1 run of 2 failed: plain-1." in outcome.stderr
    shutil.rmtree("out/logs")
    assert invoke("study", file, "-o", "out", "--jobs", "1").code == 0


@pytest.mark.long
def test_other_settings_in_the_same_folder() -> None:
    first = document("study", write(evaluations={"e": {"tta": "flip"}}), "-o", "out", "--jobs", "1")
    outcome = invoke("study", write(evaluations={"e": {"limit": 50}}), "-o", "out", "--jobs", "1", "--json")
    assert "The evaluation 'e' has changed and is measured again." in outcome.stderr
    assert (first["rows"][0]["images"], json.loads(outcome.stdout)["rows"][0]["images"]) == (450, 50)
    trained = Path("out/runs/plain-0/result.json").read_bytes()
    changed = write(recipe={**TINY["recipe"], "lr": 0.02})
    assert "plain-0 was started with other settings: lr (of plain-0)." in refusal("study", changed, "-o", "out")
    assert Path("out/runs/plain-0/result.json").read_bytes() == trained
    more = write(variants={"mine": {"lr": 0.02}})
    said = invoke("study", more, "-o", "out", "--jobs", "1").stderr
    assert "New since the folder was begun: mine-0." in said
    assert "No longer in the study, left in place: plain-0." in said
    # The settings of a run that is not in the study any more are not forgotten.
    assert "started with other settings" in refusal("study", write(recipe={**TINY["recipe"], "lr": 0.02}), "-o", "out")
    changed = write(recipe={**TINY["recipe"], "lr": 0.02})
    assert "plain-0 is trained again." in invoke("study", changed, "-o", "out", "--jobs", "1", "--overwrite").stderr
    assert json.loads(Path("out/runs/plain-0/result.json").read_text())["recipe"]["lr"] == 0.02


@pytest.mark.long
def test_networks_are_adapted_to_the_images_of_an_evaluation() -> None:
    evaluations = {"test": None, "adapted": {"recalibrate": 64}, "kept": {"recalibrate": 1e9}}
    result = document("study", write(evaluations=evaluations), "-o", "out", "--jobs", "1")
    rows = {row["evaluation"]: row for row in result["rows"] if row["metric"] == "cross-entropy"}
    assert {row["images"] for row in rows.values()} == {450}
    assert rows["kept"]["mean"] == pytest.approx(rows["test"]["mean"], rel=1e-4)
    assert rows["adapted"]["mean"] != pytest.approx(rows["test"]["mean"], rel=1e-3)
    assert "$ surgeon recalibrate" in Path("out/logs/plain-0.log").read_text()


def test_a_folder_that_is_no_study_is_left_alone() -> None:
    Path("out").mkdir()
    Path("out/mine.txt").write_text("mine")
    assert "does not hold a study" in refusal("study", write(), "-o", "out")
    assert "There is no study in" in refusal("study", "show", "out")
    assert "pass one of them" in refusal("study", write(), "-o", "other", "--jobs", "1", "--ray", "auto")


def test_a_plan_measures_a_few_steps_and_writes_nothing() -> None:
    plan = document("study", "plan", write(seeds=3), "--jobs", "2")
    assert (plan["runs"], len(plan["missing"]), plan["jobs"]) == (3, 3, 2)
    assert plan["seconds"] > 0
    assert plan["bytes"] > 500_000
    assert [path.name for path in Path().iterdir()] == ["mine.yaml"]


@pytest.mark.long
def test_from_python_where_memory_of_the_first_run_decides_how_many_there_are_at_a_time() -> None:
    result = surgeon.study(write(seeds=2), "out")
    assert [run.state for run in result.runs] == ["finished"] * 2
    figures = [json.loads(Path(f"out/runs/plain-{seed}/result.json").read_text()) for seed in range(2)]
    assert result.rows[0].mean == pytest.approx(sum(one["test"]["accuracy"] for one in figures) / 2, abs=1e-12)
    notes = json.loads(Path("out/logs/plain-0.json").read_text())
    assert notes["peak_bytes"] > 100 * 2**20


@pytest.mark.long
def test_ray_finishes_the_task_of_a_killed_worker(started: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_worker_niceness", "0")  # its default of 15 gets no processor time on a busy machine
    file = write(recipe={**TINY["recipe"], "epochs": 1500, "validate_every": 1500}, seeds=2)
    study = started("study", file, "-o", "out", "--ray", "local")
    wait_for(lambda: is_training("out", "plain-0"))
    (worker,) = (pid for pid in workers_of("out") if b"plain-0" in Path(f"/proc/{pid}/cmdline").read_bytes())
    of_ray = int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(of_ray, signal.SIGKILL)
    said = study.communicate(timeout=400)[1]
    assert study.returncode == 0, said
    assert Path("out/logs/plain-0.log").read_text().count("$ surgeon finetune") == 2
    assert [run["state"] for run in document("study", "show", "out")["runs"]] == ["finished"] * 2


@pytest.mark.long
def test_what_this_machine_cannot_give_is_refused_on_ray() -> None:
    """Ray would wait for a machine that has it, and say nothing."""
    pytest.importorskip("ray")
    said = refusal("study", write(cpus=10_000, memory=1e6), "-o", "out", "--ray", "local")
    assert "cannot give a run what the study reserves: 10,000 CPUs and 1,000,000 GiB of memory" in said


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "norm-surgeon[ray]" in refusal("study", write(), "-o", "out", "--ray", "auto")
