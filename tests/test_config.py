from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from chronospike.config import Settings as Shared
from chronospike.config import (
    make_settings,
    parse_assignments,
    preset_names,
    read_preset,
    read_settings,
    write_settings,
)
from chronospike.errors import InputError
from chronospike.methods.chronospike.settings import ChronoSpikeSettings as Settings


def test_the_presets_are_those_that_are_promised() -> None:
    assert preset_names() == ["dblp", "default", "network", "paper", "patent", "pubmed", "tmall"]


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_is_valid_and_opens_with_the_command_that_runs_it(name: str) -> None:
    make_settings(Settings, read_preset(name))
    text = files("chronospike.presets").joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    assert text.startswith("# chronospike train ")


def test_the_paper_preset_is_the_defaults_with_bare_neuron_parameters() -> None:
    assert make_settings(Settings, read_preset("paper")) == Settings(neuron_form="raw", standardise_over="all")


def test_the_defaults_are_the_papers() -> None:
    s = Settings()
    assert (s.hidden, s.fanouts, s.heads, s.dropout, s.p) == ((128, 64), (5, 2), 4, 0.7, 0.5)
    assert (s.learning_rate, s.weight_decay, s.batch_size, s.epochs, s.patience) == (5e-3, 1e-4, 1024, 100, 10)
    assert (s.contrastive, s.temperature, s.clip, s.split_seed) == (0.1, 0.5, 1.0, 42)


def test_an_unknown_setting_gets_the_nearest_name() -> None:
    with pytest.raises(InputError, match="there is no setting 'fanout'. Did you mean 'fanouts'\\?"):
        make_settings(Settings, {"fanout": [5, 2]})
    with pytest.raises(InputError, match="Did you mean 'dropout'"):
        Settings().change(drop_out=0.5)


@pytest.mark.parametrize(
    ("values", "allowed"),
    [
        ({"p": 2}, "0 <= p <= 1"),
        ({"dropout": 1}, "0 <= dropout < 1"),
        ({"validation": 0.5}, "0 < validation < 0.5"),
        ({"learning_rate": 0}, "0 < learning_rate"),
        ({"epochs": 0}, "1 <= epochs < 2147483648"),
        ({"seed": -1}, "0 <= seed < 9223372036854775808"),
        ({"split_seed": 2**32}, "0 <= split_seed < 4294967296"),
    ],
)
def test_a_value_out_of_range_gets_the_range(values: dict[str, Any], allowed: str) -> None:
    name, value = next(iter(values.items()))
    with pytest.raises(InputError) as caught:
        make_settings(Settings, values)
    assert str(caught.value) == f"setting '{name}' is {value}: it must be {allowed}"


def test_a_choice_that_does_not_exist_gets_the_choices() -> None:
    with pytest.raises(InputError, match="setting 'neuron' is 'lif': input should be 'adaptive', 'fixed' or 'relu'"):
        make_settings(Settings, {"neuron": "lif"})


@pytest.mark.parametrize(
    "values",
    [
        {"learning_rate": float("inf")},
        {"weight_decay": float("nan")},
        {"hidden": [], "fanouts": []},
        {"hidden": [16, 0]},
        {"epochs": 2.5},
        {"fanouts": 5},
        {"features": None},
        {"static": "perhaps"},
    ],
)
def test_a_value_of_the_wrong_kind_is_named(values: dict[str, Any]) -> None:
    with pytest.raises(
        InputError, match="^setting '(learning_rate|weight_decay|hidden|epochs|fanouts|features|static)' is"
    ):
        make_settings(Settings, values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"fanouts": [5]}, "one entry per layer"),
        ({"heads": 3}, "cannot be split into 3 heads"),
        ({"temporal_heads": 5}, "cannot be split into 5 temporal heads"),
        ({"ratio": 0.05, "validation": 0.05}, "must be smaller than ratio"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_settings(Settings, values)


def test_heads_do_not_matter_without_attention() -> None:
    assert make_settings(Settings, {"heads": 3, "aggregator": "mean"}).heads == 3
    assert make_settings(Settings, {"temporal_heads": 5, "temporal": "lstm"}).temporal_heads == 5


def test_settings_cannot_be_changed_in_place() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Settings().epochs = 3  # type: ignore[misc]
    assert Settings().change(epochs=3).epochs == 3


def test_assignments_are_read_as_people_mean_them() -> None:
    given = ["learning_rate=1e-3", "epochs=7", "fanouts=[10, 5]", "static=true", "neuron=relu", " p = 0.3"]
    assert parse_assignments(given) == {
        "learning_rate": 0.001, "epochs": 7, "fanouts": [10, 5], "static": True, "neuron": "relu", "p": 0.3,
    }  # fmt: skip
    assert isinstance(parse_assignments(["epochs=7"])["epochs"], int)


def test_the_last_of_two_assignments_counts() -> None:
    assert parse_assignments(["p=0.1", "p=0.2"]) == {"p": 0.2}


@pytest.mark.parametrize("assignment", ["epochs", "p=[1", "p=!!python/object/apply:os.getcwd []"])
def test_an_assignment_that_cannot_be_read_is_named(assignment: str) -> None:
    with pytest.raises(InputError, match="--set"):
        parse_assignments([assignment])


def test_yaml_never_runs_what_it_holds(tmp_path: Path) -> None:
    trap, file = tmp_path / "trap", tmp_path / "mine.yaml"
    file.write_text(f'epochs: !!python/object/apply:os.mkdir ["{trap}"]\n')
    with pytest.raises(InputError, match="mine.yaml is not valid YAML") as caught:
        read_settings(file)
    assert "\n" not in str(caught.value)
    assert not trap.exists()


def test_a_settings_file_that_is_no_settings_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "list.yaml").write_text("- 1\n- 2\n")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "twice.yaml").write_text("p: 0.1\nepochs: 3\np: 0.2\n")
    (tmp_path / "folder.yaml").mkdir()
    for name, message in (
        ("list", "must hold names and values, not a list"),
        ("binary", "is not valid YAML"),
        ("twice", "is not valid YAML: 'p' is given twice in .* line 3"),
        ("folder", "cannot be read"),
        ("nothing", "does not exist"),
    ):
        with pytest.raises(InputError, match=f"{name}.yaml {message}"):
            read_preset(str(tmp_path / f"{name}.yaml"))


def test_an_empty_settings_file_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("# nothing yet\n")
    assert read_settings(tmp_path / "empty.yaml") == {}


def test_an_unknown_preset_gets_the_nearest_and_the_list() -> None:
    with pytest.raises(InputError, match="no preset 'dblb'. Did you mean 'dblp'\\? Presets: dblp, default"):
        read_preset("dblb")


def test_settings_survive_being_written(tmp_path: Path) -> None:
    settings = make_settings(
        Settings, {"fanouts": [10, 5, 2], "hidden": [8, 8, 8], "learning_rate": 1e-5, "static": True}
    )
    (tmp_path / "config.yaml").write_text(write_settings(settings))
    found = read_settings(tmp_path / "config.yaml")
    assert list(found) == list(Settings.model_fields)
    assert make_settings(Settings, found) == settings


def test_settings_without_a_list_are_written_one_a_line() -> None:
    assert write_settings(Shared()).startswith("features: auto\nfeature_method: deepwalk\n")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("epochs", 2**31, "1 <= epochs < 2147483648"),
        ("hidden", [2**21, 64], "less than or equal to 1048576"),
        ("feature_dimension", 10**9, "1 <= feature_dimension <= 1048576"),
        ("fanouts", [2] * 40, "at most 16 items"),
        ("seed", 2**63, "0 <= seed < 9223372036854775808"),
    ],
)
def test_numbers_that_nothing_could_hold_are_refused(name: str, value: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        make_settings(Settings, {name: value})


@pytest.mark.parametrize("text", ["9" * 5000, "2020-99-99", "[" * 5000])
def test_a_value_that_cannot_be_read_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        parse_assignments([f"seed={text}"])
    (tmp_path / "config.yaml").write_text(f"seed: {text}")
    with pytest.raises(InputError, match="is not valid YAML"):
        read_settings(tmp_path / "config.yaml")


def test_a_preset_may_be_a_path(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("epochs: 3\n", encoding="utf-8")
    assert read_preset(tmp_path / "mine.yaml") == {"epochs": 3}
