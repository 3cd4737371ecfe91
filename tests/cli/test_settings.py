from __future__ import annotations

import json

import pytest

from chronospike.cli import run
from chronospike.cli.settings import allowed
from chronospike.methods.chronospike.settings import ChronoSpikeSettings as Settings


def test_every_setting_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["settings"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    assert listed == list(Settings.model_fields)


def test_it_says_what_is_shown_and_how_to_change_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["settings", "--preset", "dblp"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("Settings of the preset dblp: value (value without the preset, if it differs)")
    assert said[1] == "Change one with: chronospike train GRAPH -o RUN --set NAME=VALUE"


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("epochs", "integer >= 1"),
        ("p", "number 0 <= x <= 1"),
        ("ratio", "number 0 < x < 1"),
        ("learning_rate", "number > 0"),
        ("seed", "integer >= 0"),
        ("fanouts", "list, each integer >= 1"),
        ("refit", "true or false"),
        ("aggregator", "attention, mean or sum"),
        ("features", ""),
    ],
)
def test_what_a_setting_may_be_is_said(name: str, rule: str) -> None:
    assert allowed(Settings.model_fields[name]) == rule


def test_a_preset_shows_what_it_changes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["settings", "--preset", "paper"]) == 0
    assert "raw  (without preset: softplus)  [softplus or raw]" in capsys.readouterr().out
    assert run(["settings", "--preset", "dblp"]) == 0
    assert "0.5  (paper: 0.7)  [number 0 <= x < 1]" in capsys.readouterr().out
    assert run(["settings", "--preset", "paper", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["neuron_form"] == "raw"


def test_a_mistyped_preset_gets_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["settings", "--preset", "papre"]) == 2
    assert "Did you mean 'paper'?" in capsys.readouterr().err
