"""Tasks on Ray: a cluster with shared storage, or this machine. Ray retries those whose worker was killed."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from surgeon.core.errors import ExitCode, SurgeonError, listing
from surgeon.studies.definition import Definition
from surgeon.studies.execution import Running
from surgeon.studies.local import TICK, Watcher
from surgeon.studies.tasks import Task

RETRIES = 3
LOCAL = "local"


def run_on_ray(tasks: Sequence[Task], address: str, study: Definition, watcher: Watcher) -> None:
    """Do all tasks where Ray has room for them; a task that fails does not stop the others.

    Args:
        tasks: What is missing. Their folders have to be on storage that all machines share.
        address: Of the cluster; `auto` for the one that this machine belongs to, `local` for one of its own.
        study: What one run needs.
        watcher: Who hears of it.
    """
    ray = _ray()
    mine = not ray.is_initialized()
    if mine:
        try:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, RuntimeError, ValueError) as error:
            reason = next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")
            raise SurgeonError(
                f"There is no Ray at {address!r}: {reason}.",
                "Start one with `ray start --head`, or pass --ray local for one of your own.",
                ExitCode.FAILED,
            ) from None
    memory = {"memory": int(study.memory * 2**30)} if study.memory is not None else {}
    needed = {"CPU": study.cpus, "GPU": study.gpus, **memory}
    if not any(_has_room(node["Resources"], needed) for node in ray.nodes() if node["Alive"]):
        if mine and address == LOCAL:
            ray.shutdown()
            raise SurgeonError(f"This machine cannot give a run what the study reserves: {_listed(needed)}.")
        watcher.says(f"No machine of the cluster has {_listed(needed)} for a run: runs wait until one joins.")
    perform = ray.remote(num_cpus=study.cpus, num_gpus=study.gpus, max_retries=RETRIES, **memory)(_perform)
    threads = max(1, int(study.cpus))
    waiting: dict[Any, Task] = {}
    try:
        for task in tasks:
            watcher.began(task)
            waiting[perform.remote(task, threads, os.getcwd())] = task
        while waiting:
            ended, _ = ray.wait(list(waiting), num_returns=1)
            for reference in ended:
                watcher.ended(waiting.pop(reference), _answer(ray, reference))
    except BaseException:
        for reference in waiting:
            ray.cancel(reference)
        ray.wait(list(waiting), num_returns=len(waiting), timeout=60)
        raise
    finally:
        if mine:
            ray.shutdown()


def _has_room(resources: Mapping[str, float], needed: Mapping[str, float]) -> bool:
    return all(resources.get(name, 0) >= amount for name, amount in needed.items())


def _listed(needed: Mapping[str, float]) -> str:
    units = {"CPU": "CPUs", "GPU": "GPUs"}
    shown = {name: f"{amount:,.10g} {units[name]}" for name, amount in needed.items() if name in units and amount}
    memory = [f"{needed['memory'] / 2**30:,.10g} GiB of memory"] if "memory" in needed else []
    return listing([*shown.values(), *memory])


def _answer(ray: Any, reference: Any) -> str:
    try:
        return str(ray.get(reference))
    except ray.exceptions.RayError as error:
        return f"Ray: {next(iter(str(error).splitlines()), type(error).__name__)}"


def _perform(task: Task, threads: int, folder: str) -> str:
    """In a worker of Ray: the whole task, in processes that end when the worker does. Returns its error, if any."""
    os.chdir(folder)
    running = Running(task, threads)
    try:
        while not running.poll():
            time.sleep(TICK)
    except BaseException:  # cancelled
        running.interrupt()
        running.stop()
        raise
    return running.notes.error


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise SurgeonError(
            "Ray is not installed.", "pip install 'norm-surgeon[ray]', or leave --ray out: --jobs N needs nothing."
        ) from None
    return ray
