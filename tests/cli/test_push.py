"""`surgeon card` and `surgeon push`, against a stand-in for the hub on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
import timm
import torch
from huggingface_hub import ModelCard, constants

import surgeon
from surgeon.checkpoint.card import model_card
from surgeon.checkpoint.card_header import card_metadata
from surgeon.checkpoint.record import read_surgery
from surgeon.checkpoint.writing import licence_of
from surgeon.models.history import Step
from surgeon.models.origin import BaseWeights
from surgeon.surgery.plan import ResolvedPlan
from tests.cli.hub import COMMIT, TOKEN, Hub
from tests.cli.running import FILES, contents, document, done, invoke, refusal, sentence
from tests.histories import OWN, fine_tuned, merged, on_test_images, swept


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written") / "net"
    done("convert", "digits-resnet8", "--bn", "example-weighted:alpha=0.5", "-o", folder)
    return folder


@pytest.fixture
def checkpoint(written: Path, here: Path) -> Path:
    """A checkpoint, and beside its files one that is nobody's business."""
    folder = here / "net"
    folder.mkdir()
    for name, content in contents(written).items():
        (folder / name).write_bytes(content)
    (folder / "notes.txt").write_text("private")
    return folder


def four(folder: Path, address: str = "hf-hub:me/net") -> dict[str, bytes]:
    """A checkpoint's files as they are at an address: the card tells it."""
    files = {name: (folder / name).read_bytes() for name in FILES}
    card = files["README.md"].decode()
    elsewhere = '  # or "hf-hub:OWNER/NAME", if it is on the hub'
    assert elsewhere in card
    files["README.md"] = card.replace(elsewhere, "").replace("path/to/this/folder", address).encode()
    return files


# --- card -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("checkpoint")
def test_the_card_is_valid_and_says_what_was_done() -> None:
    card = ModelCard(done("card", "net").stdout)
    assert card.data.to_dict() == {
        "library_name": "norm-surgeon",
        "pipeline_tag": "image-classification",
        "tags": ["batch-normalization", "norm-surgeon"],
    }
    assert "example-weighted:alpha=0.5" in card.text
    assert "7 BatchNorm2d" in card.text


def test_a_card_is_rewritten_only_when_told_to(checkpoint: Path) -> None:
    readme = checkpoint / "README.md"
    readme.write_text("mine")
    assert "--overwrite" in refusal("card", "net", "-o", readme)
    assert readme.read_text() == "mine"
    told = document("card", "net", "-o", readme, "--overwrite")
    assert readme.read_text("utf-8") == told["text"]
    assert told["metadata"]["library_name"] == "norm-surgeon"


def test_a_broken_checkpoint_has_no_card(checkpoint: Path) -> None:
    (checkpoint / "config.json").write_text("{}")
    assert "config.json" in refusal("card", "net", code=3)
    assert "no checkpoint folder" in refusal("card", "nowhere")


def test_what_was_measured_is_in_the_header(checkpoint: Path) -> None:
    record = read_surgery(checkpoint)
    found = (fine_tuned(), swept(), on_test_images())
    data = card_metadata("net", record.model_copy(update={"history": found})).to_dict()
    assert data["datasets"] == ["uoft-cs/cifar10"]
    assert data["metrics"] == ["accuracy"]
    (result,) = data["model-index"][0]["results"]
    assert result["dataset"]["type"] == "uoft-cs/cifar10"
    (read,) = ModelCard(model_card("net", record.model_copy(update={"history": found}))).data.eval_results
    assert (read.task_type, read.metric_value) == ("image-classification", 0.9321)
    assert result["metrics"] == [{"type": "accuracy", "value": 0.9321}]


@pytest.mark.parametrize(
    "found",
    [
        (fine_tuned(),),
        (fine_tuned(OWN), on_test_images(OWN)),
        (fine_tuned(), on_test_images(), swept()),
        (on_test_images(), merged()),
    ],
    ids=["not tested", "images of one's own", "another setting since", "merged since"],
)
def test_what_was_not_measured_on_known_images_is_not(found: tuple[Step, ...], checkpoint: Path) -> None:
    record = read_surgery(checkpoint)
    data = card_metadata("net", record.model_copy(update={"history": found})).to_dict()
    assert "model-index" not in data
    assert "metrics" not in data


def test_fine_tuning_is_told_by_the_card() -> None:
    done(
        "finetune",
        "digits-resnet8",
        "--data",
        "digits",
        "--epochs",
        "1",
        "--limit",
        "100",
        "--workers",
        "0",
        "-o",
        "run",
    )
    data = document("card", "run/checkpoint")["metadata"]
    (result,) = data["model-index"][0]["results"]
    assert result["dataset"] == {"type": "digits", "name": "digits", "split": "test"}
    assert 0 < result["metrics"][0]["value"] <= 1
    assert "datasets" not in data  # the hub knows none of this name
    assert data["model-index"][0]["name"] == "digits-resnet8, fine-tuned on digits"
    assert "# digits-resnet8, fine-tuned on digits\n" in Path("run/checkpoint/README.md").read_text("utf-8")


def test_a_network_without_rewrites_has_a_card_too(checkpoint: Path) -> None:
    plain = read_surgery(checkpoint).model_copy(update={"plan": ResolvedPlan(operations=())})
    text = model_card("net", plain)
    assert "`surgeon: digits-resnet8`, without rewrites." in text
    assert ModelCard(text).data.pipeline_tag == "image-classification"


@pytest.mark.parametrize(
    ("origin", "licence", "base"),
    [
        ("resnet18.a1_in1k", "apache-2.0", "timm/resnet18.a1_in1k"),
        ("hf-hub:me/net", "apache-2.0", "me/net"),
        ("hf-hub:me/net@branch", "apache-2.0", "me/net"),
        ("resnet18.pth", None, None),
        ("random", None, None),
    ],
)
def test_licence_and_base_are_told_of_known_weights_only(
    origin: str, licence: str | None, base: str | None, checkpoint: Path
) -> None:
    config = {"architecture": "resnet18", "pretrained_cfg": {"tag": "a1_in1k", "license": "apache-2.0"}}
    record = read_surgery(checkpoint).model_copy(update={"base_weights": BaseWeights(origin=origin)})
    assert licence_of(config, record) == licence
    data = card_metadata("net", record, licence).to_dict()
    assert data.get("license") == licence
    assert data.get("base_model") == base


# --- push -----------------------------------------------------------------------------------------------


def test_the_card_tells_the_address_it_has_there(checkpoint: Path, hub: Hub) -> None:
    before = contents(checkpoint)
    done("push", "net", "me/net")
    card = hub.files["README.md"].decode()
    assert 'model = surgeon.load("hf-hub:me/net")\n' in card
    assert "`surgeon verify hf-hub:me/net`" in card
    assert "OWNER/NAME" not in card
    assert "path/to" not in card
    assert contents(checkpoint) == before


def test_a_folder_for_timm_alone(hub: Hub, here: Path) -> None:
    done("convert", "test_resnet", "--no-pretrained", "--bn", "ghost", "-o", "ghost")
    done("export", "ghost", "--to", "timm", "-o", "plain")
    assert document("push", "plain", "me/net")["files"] == ["model.safetensors", "config.json", "README.md"]
    card = hub.files.pop("README.md").decode()
    assert 'timm.create_model("hf-hub:me/net", pretrained=True)\n' in card
    assert hub.files == {name: (here / "plain" / name).read_bytes() for name in hub.files}
    assert f"Its card was written with it, to {Path('plain/README.md')}" in refusal("card", "plain")
    (here / "plain" / "README.md").unlink()
    assert "surgeon export CKPT --to timm -o plain" in refusal("push", "plain", "me/net", code=3)
    (here / "plain" / "model.safetensors").write_bytes(b"half")
    assert "truncated" in refusal("push", "plain", "me/net", code=3)


def test_a_checkpoint_without_its_record_is_not_one(checkpoint: Path, hub: Hub) -> None:
    (checkpoint / "surgery.json").unlink()
    assert "has no surgery.json" in refusal("push", "net", "me/net", code=3)
    assert hub.requests == []


def test_four_files_arrive_byte_for_byte_and_load_again(checkpoint: Path, hub: Hub, here: Path) -> None:
    outcome = done("push", "net", "me/net", "-m", "First of its kind")
    assert outcome.stdout == f"{hub.address}/me/net\n"
    assert f"commit {hub.address}/me/net/commit/{COMMIT}" in outcome.stderr
    assert hub.files == four(checkpoint)
    assert hub.commits == [{"revision": "main", "summary": "First of its kind"}]
    assert {token for path, token in hub.tokens.items() if path.startswith("POST ")} == {f"Bearer {TOKEN}"}
    again = here / "again"
    again.mkdir()
    for name, content in hub.files.items():
        (again / name).write_bytes(content)
    x = torch.randn(2, 1, 8, 8)
    assert torch.equal(surgeon.load(again)(x), surgeon.load(checkpoint)(x))
    assert document("eval", "again", "--data", "digits", "--limit", "50")["metrics"]["accuracy"] > 0.9


def test_the_result_as_json(checkpoint: Path, hub: Hub) -> None:
    told = document("push", "net", "me/net")
    assert told["commit_url"] == f"{hub.address}/me/net/commit/{COMMIT}"
    assert told["commit"] == COMMIT
    assert told["address"] == f"{hub.address}/me/net"
    assert sorted(told["files"]) == FILES
    assert hub.files == four(checkpoint)


def test_large_files_go_through_lfs(checkpoint: Path, hub: Hub) -> None:
    hub.lfs = ("model.safetensors",)
    outcome = done("push", "net", "me/net")
    assert len(hub.stored) == 1
    assert hub.files == four(checkpoint)
    assert outcome.stderr.count("\n") == 2  # no progress bars where nobody watches


def test_a_timm_network_comes_back_in_timm(hub: Hub, here: Path) -> None:
    done("convert", "test_resnet", "--no-pretrained", "--bn", "ghost", "-o", "timm-net")
    done("push", "timm-net", "me/net")
    (here / "again").mkdir()
    for name, content in hub.files.items():
        (here / "again" / name).write_bytes(content)
    model = timm.create_model(f"local-dir:{here / 'again'}", pretrained=True).eval()
    x = torch.randn(1, 3, 160, 160)
    assert torch.allclose(model(x), surgeon.load(here / "timm-net")(x), atol=1e-5)


@pytest.mark.usefixtures("checkpoint")
def test_an_existing_repository_and_a_branch(hub: Hub) -> None:
    hub.exists = True
    told = document("push", "net", "me/net", "--revision", "v2")
    assert told["revision"] == "v2"
    assert hub.branches == ["v2"]
    assert hub.commits[0]["revision"] == "v2"
    assert b'surgeon.load("hf-hub:me/net@v2")\n' in hub.files["README.md"]


@pytest.mark.usefixtures("checkpoint")
def test_a_private_repository(hub: Hub) -> None:
    hub.private = True
    done("push", "net", "me/net", "--private")
    assert hub.created[0].get("visibility") == "private" or hub.created[0].get("private") is True


@pytest.mark.usefixtures("checkpoint")
def test_nothing_private_goes_to_a_public_repository(hub: Hub) -> None:
    hub.exists = True
    said = refusal("push", "net", "me/net", "--private")
    assert "is public" in said
    assert hub.files == {}


@pytest.mark.usefixtures("checkpoint")
@pytest.mark.parametrize(
    ("where", "status", "says"),
    [
        ("/repos/create", 401, "does not accept your token"),
        ("/repos/create", 500, "internal error (500)"),
        ("/preupload/", 403, "does not allow you to write"),
        ("/commit/", 401, "does not accept your token"),
        ("/commit/", 403, "does not allow you to write"),
        ("/commit/", 409, "at the same time"),
        ("/commit/", 400, "refused it (400: as told by the test)"),
        ("/commit/", 500, "internal error (500)"),
        ("/paths-info/", 500, "internal error (500)"),
    ],
)
def test_a_refusal_is_one_sentence(where: str, status: int, says: str, hub: Hub) -> None:
    hub.refusals[where] = status
    said = refusal("push", "net", "me/net", code=1)
    assert says in said
    assert "me/net" in said


@pytest.mark.usefixtures("checkpoint")
def test_somebody_elses_repository(hub: Hub) -> None:
    """It can be read but not created, nor written to."""
    hub.exists, hub.refusals = True, {"/repos/create": 403, "/preupload/": 403}
    assert "does not allow you to write" in refusal("push", "net", "me/net", code=1)
    assert "GET /api/models/me/net" in hub.requests
    assert hub.files == {}


@pytest.mark.usefixtures("checkpoint")
def test_a_file_that_the_hub_has_left_out(hub: Hub) -> None:
    hub.ignores = ("surgery.json",)
    said = refusal("push", "net", "me/net", code=1)
    assert "does not hold your surgery.json" in said


def test_a_broken_checkpoint_is_not_sent(checkpoint: Path, hub: Hub) -> None:
    (checkpoint / "config.json").write_text("{}")
    assert "sha256" in refusal("push", "net", "me/net", code=3)
    assert hub.requests == []


@pytest.mark.parametrize("card", [None, "no header", "---\n- a list\n---\n", "---\ntags: [\n---\n"])
def test_a_broken_card_is_not_sent(card: str | None, checkpoint: Path, hub: Hub) -> None:
    (checkpoint / "README.md").unlink()
    if card is not None:
        (checkpoint / "README.md").write_text(card)
    assert "surgeon card net -o net/README.md" in refusal("push", "net", "me/net", code=3)
    assert hub.requests == []


@pytest.mark.usefixtures("checkpoint")
@pytest.mark.parametrize("name", ["net", "me/net/more", "me/--net", "me/a b", "https://huggingface.co/me/net"])
def test_a_name_that_cannot_be(name: str, hub: Hub) -> None:
    said = refusal("push", "net", name)
    assert repr(name) in said
    assert "owner/name" in said
    assert hub.requests == []


@pytest.mark.usefixtures("checkpoint")
def test_nobody_is_logged_in(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    assert "hf auth login" in refusal("push", "net", "me/net", code=1)
    assert hub.requests == []


@pytest.mark.usefixtures("checkpoint")
def test_offline_by_setting() -> None:
    assert "HF_HUB_OFFLINE" in refusal("push", "net", "me/net", code=1)


@pytest.mark.usefixtures("checkpoint")
def test_an_unreachable_hub(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def unresolved(*_: object) -> None:
        raise OSError("Name or service not known")

    monkeypatch.setattr("surgeon.models.hub.getproxies", dict)
    monkeypatch.setattr("surgeon.models.hub.socket.getaddrinfo", unresolved)
    said = refusal("push", "net", "me/net", code=1)
    assert said.startswith("Nothing was uploaded: the hub is not reachable")
    assert hub.requests == []


@pytest.mark.usefixtures("checkpoint", "hub")
def test_a_hub_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    said = sentence(invoke("push", "net", "me/net"), code=1)
    assert "The upload to me/net failed" in said
    assert "Check the connection" in said


@pytest.mark.usefixtures("checkpoint", "hub")
def test_json_is_printed_only_for_what_has_arrived(hub: Hub) -> None:
    hub.refusals["/commit/"] = 500
    outcome = invoke("push", "net", "me/net", "--json")
    assert outcome.code == 1
    assert outcome.stdout == ""
