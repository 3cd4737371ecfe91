from __future__ import annotations

import json

import pytest

from chronospike.cli import run
from chronospike.config import Settings


def test_every_setting_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["settings"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()[:-1]]
    assert listed == list(Settings.model_fields)


def test_a_preset_shows_what_it_changes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["settings", "--preset", "paper"]) == 0
    assert "raw  (default: softplus)" in capsys.readouterr().out
    assert run(["settings", "--preset", "paper", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["neuron_form"] == "raw"


def test_a_mistyped_preset_gets_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["settings", "--preset", "papre"]) == 2
    assert "Did you mean 'paper'?" in capsys.readouterr().err
