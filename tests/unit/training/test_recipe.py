"""Recipes are strict: what is wrong is told, all of it, and what ships is right."""

from __future__ import annotations

import importlib.util
import shlex
from pathlib import Path

import pytest
import yaml

import surgeon
from surgeon import checkpoint
from surgeon.core.errors import SurgeonError
from surgeon.models.names import check_model_name
from surgeon.models.origin import Preprocessing
from surgeon.training import network
from surgeon.training.copies import plan_copies
from surgeon.training.defaults import Situation, settle
from surgeon.training.recipe import OPEN, Recipe, as_yaml, check_recipe, load_recipe
from surgeon.training.recipe_files import header_of, read_yaml, shipped_recipes
from surgeon.training.schedule import Schedule, make_optimizer

RECIPES = shipped_recipes()


def test_there_are_recipes() -> None:
    assert {"flowers102", "cub200", "moex-cifar10", "snapshot-cifar10"} <= RECIPES.keys()


@pytest.mark.parametrize("name", RECIPES)
def test_a_shipped_recipe_says_how_to_run_it_and_what_to_expect(name: str) -> None:
    header = header_of(RECIPES[name])
    words = shlex.split(header.command)
    assert header.summary.endswith(".")
    assert header.expected
    assert words[:2] == ["surgeon", "finetune"]
    assert words[words.index("--recipe") + 1] == name
    check_model_name(words[2])


@pytest.mark.parametrize("name", RECIPES)
def test_a_shipped_recipe_fits_its_network(name: str) -> None:
    """Everything but the training itself: rewriting, what learns, optimiser, schedule, copies of images."""
    model = shlex.split(header_of(RECIPES[name]).command)[2]
    if model == "resnet152":
        model = "resnet26"  # the same kinds of layers
    if "28-10" in model:
        model = "cifar-wideresnet28-2"
    loaded = checkpoint.open_model(model, pretrained=False)
    assert loaded.origin.preprocessing is not None
    network.apply_rewrites(loaded, load_recipe(name))
    situation = Situation(
        images=1000,
        classes=7,
        preprocessing=loaded.origin.preprocessing,
        trained=False,
        new_head=False,
        residual=True,
        branch_augments=network.branch_augments(loaded.model),
    )
    recipe = settle(load_recipe(name), situation).recipe
    network.choose_what_learns(loaded.model, recipe)
    optimizer = make_optimizer(network.parameter_groups(loaded.model, recipe), recipe)
    schedule = Schedule(optimizer, recipe, steps=10 * recipe.epochs)
    schedule.set(0)
    copies = plan_copies(recipe, loaded.model, loaded.origin.preprocessing, branches="split" in recipe.bn)
    assert bool(copies.attack) == any("pgd" in spec for spec in (recipe.attack or "", *recipe.strong))


BEFORE_DECIDING = {"head_lr": 1.0, "head_scale": 1.0, "warmup_epochs": 0.0, "freeze": ()}
"""What was taken where a recipe was silent, before network and images decided."""


@pytest.mark.parametrize("name", RECIPES)
def test_a_shipped_recipe_means_what_it_meant_before_anything_was_decided(name: str) -> None:
    recipe = load_recipe(name)
    trained = "--no-pretrained" not in header_of(RECIPES[name]).command
    large = Preprocessing(input_size=(3, 224, 224), mean=(0, 0, 0), std=(1, 1, 1))
    situation = Situation(images=77, classes=7, preprocessing=large, trained=trained, new_head=trained, residual=True)
    settled = settle(recipe, situation).recipe
    silent = [key for key in OPEN if getattr(recipe, key) is None]
    before = {**dict(recipe), **{key: BEFORE_DECIDING[key] for key in silent}, "input_size": settled.input_size}
    assert dict(settled) == {**before, "sweep_metric": recipe.sweep_metric or "accuracy"}


@pytest.mark.parametrize(
    ("name", "attack", "terms"),
    [
        ("pgd-cifar10", "pgd:eps=0.03,step=0.0078,steps=7", ["cross-entropy"]),
        ("pgd-svhn", "pgd:eps=12/255,step=3/255,steps=7", ["cross-entropy"]),
        (
            "lrm-cifar10",
            "pgd:eps=0.03,step=0.0078,steps=7",
            ["cross-entropy:smoothing=0.1", "decoupled-pairing", "logit-squeezing"],
        ),
        (
            "lrm-cifar100",
            "pgd:eps=0.03,step=0.0078,steps=7",
            ["cross-entropy:smoothing=0.1", "decoupled-pairing:ratio=0.95", "logit-squeezing:beta=3e-05"],
        ),
        (
            "lrm-svhn",
            "pgd:eps=12/255,step=3/255,steps=7",
            ["cross-entropy:smoothing=0.2", "decoupled-pairing:ratio=0.95", "logit-squeezing:beta=0.0001"],
        ),
        ("alp-cifar10", "pgd:eps=0.03,step=0.0078,steps=7", ["cross-entropy:on=weak+adversarial", "alp"]),
        ("alp-cifar100", "pgd:eps=0.03,step=0.0078,steps=7", ["cross-entropy:on=weak+adversarial", "alp:weight=5.0"]),
        ("trades-cifar10", "pgd:eps=0.031,step=0.007,steps=10", ["cross-entropy", "trades"]),
        ("advprop-cifar10", None, ["cross-entropy"]),
    ],
)
def test_the_recipes_of_adversarial_training_have_the_values_of_their_papers(
    name: str, attack: str | None, terms: list[str]
) -> None:
    """What is not named is a term's default: ratio 0.125, beta 0.001, weight 0.5, and beta 6 of TRADES."""
    recipe = load_recipe(name)
    assert (recipe.attack, list(recipe.loss)) == (attack, terms)
    assert ("vh-mixup" in recipe.augment) == name.startswith("lrm")


def test_all_mistakes_are_told_at_once() -> None:
    content = {"epoch": 3, "lr": -1, "schedule": "cosin", "bn": 7, "milestones": 0.5, "optimizer": "adamwx"}
    with pytest.raises(SurgeonError) as told:
        check_recipe(content, "mine.yaml")
    message = told.value.message
    assert message.startswith("6 problems in mine.yaml: ")
    assert "no key 'epoch' (did you mean epochs?)" in message
    assert "bn=7: it should be a string or a list of strings" in message
    assert "milestones=0.5: Input should be a list" in message
    assert "no optimiser 'adamwx' in timm. Did you mean adamw" in message
    for key in ("lr=-1", "schedule='cosin'"):
        assert key in message


def test_all_mistakes_of_lists_and_between_keys_are_told_with_them() -> None:
    content = {
        "bn": ["ghots:size=3", "ghost", "exampl"],
        "augment": ["vh-mixp", "cutot:size=-3"],
        "epochs": 10,
        "snapshots": 3,
        "unmixed_epochs": 11,
        "foo": 1,
    }
    with pytest.raises(SurgeonError) as told:
        check_recipe(content, "mine.yaml")
    message = told.value.message
    assert message.startswith("7 problems in mine.yaml: ")
    for part in ("bn='ghots:size=3'", "bn='exampl'", "augment='vh-mixp'", "augment='cutot:size=-3'", "'foo'"):
        assert part in message
    assert "epochs=10 is not a multiple of snapshots=3; unmixed_epochs=11 is more than epochs=10" in message


def test_a_key_that_is_wrong_contradicts_no_other() -> None:
    with pytest.raises(SurgeonError, match="1 problem in x: epochs=-1"):
        check_recipe({"epochs": -1, "snapshots": 3}, "x")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("adahessian", "'adahessian' needs second derivatives"),
        ("fusedadam", "'fusedadam' needs an NVIDIA GPU and the package apex"),
        ("bnbadamw8bit", "'bnbadamw8bit' needs an NVIDIA GPU and the package bitsandbytes"),
    ],
)
def test_an_optimiser_that_cannot_work_is_refused(name: str, told: str) -> None:
    if importlib.util.find_spec("apex" if name.startswith("fused") else "bitsandbytes"):
        pytest.skip("it might work here")
    with pytest.raises(SurgeonError, match=told):
        check_recipe({"optimizer": name}, "x")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"bn": "gost"}, "ghost"),
        ({"insert": "moex:lamda=1"}, "lamda"),
        ({"augment": ["mixup|cutmx"]}, "cutmix"),
        ({"strong": "cutot"}, "cutout"),
        ({"sweep": "0:2:5"}, "between 0 and 1"),
        ({"sweep_metric": "acuracy"}, "accuracy"),
        ({"tta": "flipp"}, "flip"),
        ({"milestones": [0.5, 1.5]}, "less than 1"),
        ({"lr": float("inf")}, "finite"),
        ({"epochs": True}, "true and false"),
    ],
)
def test_what_is_used_late_is_checked_early(content: dict[str, object], told: str) -> None:
    with pytest.raises(SurgeonError, match="1 problem in x") as refused:
        check_recipe(content, "x")
    assert told in refused.value.message
    assert "?." not in refused.value.message


def test_one_name_stands_for_a_list_of_it() -> None:
    recipe = check_recipe({"freeze": "norm", "bn": "ghost"}, "x")
    assert (recipe.freeze, recipe.bn) == (("norm",), ("ghost",))


def test_a_key_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("lr: 0.1\nepochs: 3\nlr: 0.2\n")
    with pytest.raises(SurgeonError, match="'lr' appears twice"):
        read_yaml(tmp_path / "mine.yaml")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"epochs": 7, "snapshots": 3}, "not a multiple"),
        ({"epochs": 2, "warmup_epochs": 2}, "leaves no epoch"),
        ({"epochs": 2, "unmixed_epochs": 3}, "more than epochs"),
        ({"only": "norm", "freeze": ["norm"]}, "exclude"),
    ],
)
def test_keys_that_contradict_each_other(content: dict[str, object], told: str) -> None:
    with pytest.raises(SurgeonError, match=told):
        check_recipe(content, "x")


def test_yaml_runs_no_code_and_has_to_be_a_mapping(tmp_path: Path) -> None:
    evil = tmp_path / "evil.yaml"
    evil.write_text("lr: !!python/object/apply:os.getpid []\n")
    with pytest.raises(SurgeonError, match="not readable YAML"):
        read_yaml(evil)
    evil.write_text("- lr\n")
    with pytest.raises(SurgeonError, match="does not consist of"):
        read_yaml(evil)


def test_a_recipe_written_out_is_the_same_recipe() -> None:
    recipe = load_recipe("flowers102", {"lr": 0.5})
    assert recipe.lr == 0.5
    assert check_recipe(yaml.safe_load(as_yaml(recipe)), "x") == recipe


def test_every_key_is_documented() -> None:
    assert all(field.description for field in Recipe.model_fields.values())


def test_from_python(tmp_path: Path) -> None:
    result = surgeon.finetune(
        "digits-resnet8", "digits", tmp_path / "run", epochs=1, train_images=40, batch_size=20, sweep=None, workers=0
    )
    assert result.train_images == 40
    assert result.recipe["epochs"] == 1
    assert result.test is not None
    assert result.test.images == 450
    surgeon.load(result.checkpoint)
