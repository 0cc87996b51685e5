"""The local copy of a data set of the hub, and the `datasets` library without its bars and with our errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from surgeon.core.errors import ExitCode, SurgeonError
from surgeon.data.named_splits import choose_split


def fetch(repository: str, config: str | None, splits: Sequence[str | None]) -> Path:
    """The local copy of a hub data set, in which at least the files of some splits are present."""
    import datasets  # type: ignore[import-untyped]
    from huggingface_hub import snapshot_download

    from surgeon.models.hub import Reach, reach_of_hub

    if reach_of_hub() in (Reach.SWITCHED_OFF, Reach.UNRESOLVED):
        return _cached(repository)
    with quiet_datasets(repository, _not_fetched):
        files = datasets.load_dataset_builder(repository, config).config.data_files
        chosen = {choose_split(split, map(str, files), repository) for split in splits}
        # hf://datasets/owner/name@revision/path
        places = [str(file).partition("@")[2].partition("/") for part in chosen for file in files[part]]
        return Path(
            snapshot_download(
                repository,
                repo_type="dataset",
                revision=places[0][0],
                allow_patterns=["README.md", *(path for _, _, path in places)],
            )
        )


def _cached(repository: str) -> Path:
    from huggingface_hub import snapshot_download

    with quiet_datasets(repository, _not_fetched):
        return Path(snapshot_download(repository, repo_type="dataset", local_files_only=True))


def _not_fetched(repository: str, error: Exception) -> SurgeonError:
    from datasets.exceptions import DatasetNotFoundError  # type: ignore[import-untyped]
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    if isinstance(error, DatasetNotFoundError):
        return SurgeonError(
            f"There is no data set {repository!r} on the hub, or it is private or gated.",
            "Check the name; log in with `hf auth login`.",
        )
    of_the_disk = isinstance(error, OSError) and error.errno is not None and not isinstance(error, ConnectionError)
    if of_the_disk or not isinstance(error, OSError | HTTPError):
        return _not_read(repository, error)
    return SurgeonError(
        f"The data set {repository!r} could not be loaded: the hub cannot be reached, and its cache does not hold it "
        f"({type(error).__name__}).",
        "Pass a local folder of images or Parquet files with --data FOLDER.",
        ExitCode.FAILED,
    )


def _not_read(name: str, error: Exception) -> SurgeonError:
    cause = error.__cause__ or error
    reason = (str(cause).splitlines() or [type(cause).__name__])[0].rstrip(".")
    if "Config name is missing" in reason:
        hint = "Name the configuration as hf:owner/name:config, or give the folder of one configuration."
        return SurgeonError(f"{name!r} has several configurations.", hint)
    if "corresponds to no data" in reason:
        return SurgeonError(f"{name!r} holds no images in this split.", "Choose another one with --split.")
    code = ExitCode.FAILED if isinstance(cause, OSError) else ExitCode.USAGE
    return SurgeonError(f"{name!r} cannot be read: {reason}.", exit_code=code)


@contextmanager
def quiet_datasets(name: str, explain: Callable[[str, Exception], SurgeonError] = _not_read) -> Iterator[None]:
    """Keep the library's bars and remarks from the terminal, and turn its errors into ours."""
    import datasets
    import pyarrow as pa  # type: ignore[import-untyped]

    # The exception of whichever HTTP library this version of the hub uses.
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    failures = (OSError, ValueError, TypeError, HTTPError, datasets.exceptions.DatasetsError, pa.ArrowException)
    bars, verbosity = datasets.is_progress_bar_enabled(), datasets.logging.get_verbosity()
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity_error()
    try:
        yield
    except SurgeonError:
        raise
    except failures as error:
        raise explain(name, error) from error
    finally:
        datasets.logging.set_verbosity(verbosity)
        if bars:
            datasets.enable_progress_bars()
