"""--device: where the model of a command runs."""

import copy
from typing import Any

import pytest
import torch
import typer

import tokenlight as tl
from tests.tokenizers_ import model_for
from tokenlight.cli import app
from tokenlight.cli.load import load_model, move_model
from tokenlight.common.errors import UnsupportedModelError


def test_every_command_with_a_model_has_the_option():
    root: Any = typer.main.get_command(app)
    without = {
        name for name, command in root.commands.items() if "device" not in {option.name for option in command.params}
    }
    assert without == {"demo", "families", "methods", "corpus"}


def test_the_model_is_moved(checkpoint, monkeypatch):
    moved: list[torch.device] = []
    monkeypatch.setattr(type(model_for("bert")), "to", lambda _, device: moved.append(device))
    load_model(checkpoint, None, device="cuda:1")
    assert moved == [torch.device("cuda", 1)]


def test_models_on_apple_gpus_are_refused(monkeypatch):
    model = copy.deepcopy(model_for("bert"))
    monkeypatch.setattr(type(model), "device", torch.device("mps"))
    with pytest.raises(UnsupportedModelError, match=r"has no double precision.*model\.to\('cpu'\)"):
        tl.attribute(model, torch.tensor([[2, 5, 6, 3]]), method="lrp")


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("gpu", "expected cpu, cuda, xpu"),
        ("meta", "expected cpu, cuda, xpu"),
        ("", "expected cpu, cuda, xpu"),
        ("mps", "no double precision.*; use cpu"),
        ("cuda:99", "cannot be moved there"),
    ],
)
def test_other_devices_are_refused(device, message):
    model = model_for("bert")
    with pytest.raises(ValueError, match=message):
        move_model(model, device)
    assert model.device.type == "cpu"
