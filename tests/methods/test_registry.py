from __future__ import annotations

import subprocess
import sys

import pytest

from chronospike.config import Settings
from chronospike.errors import InputError
from chronospike.methods.label_propagation import LabelPropagation
from chronospike.methods.registry import (
    COMPARED,
    DEFAULT,
    METHODS,
    REFERENCES,
    learner_type,
    make_learner,
    settings_for,
)
from chronospike.methods.simple import SimpleLearner


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_found_by_the_name_it_gives_itself(name: str) -> None:
    found = learner_type(name)
    assert found.name == name
    assert found.title
    assert found.summary
    assert issubclass(found.settings_type, Settings)


def test_titles_are_distinct() -> None:
    titles = [learner_type(name).title for name in METHODS]
    assert len(set(titles)) == len(titles)


def test_what_the_registry_refers_to_is_there() -> None:
    assert {DEFAULT, *REFERENCES} <= METHODS.keys()


def test_a_comparison_that_names_no_methods_takes_the_simple_ones_and_ours() -> None:
    simple = {name for name in METHODS if issubclass(learner_type(name), SimpleLearner)}
    assert set(COMPARED) == {DEFAULT, *simple}


def test_an_unknown_method_names_the_nearest_and_all() -> None:
    with pytest.raises(InputError, match=r"there is no method 'logistik'.*'logistic'.*Methods: majority, label-prop"):
        learner_type("logistik")


def test_a_learner_gets_the_settings_of_its_own_kind() -> None:
    learner = make_learner("label-propagation", {"recency": 8})
    assert isinstance(learner, LabelPropagation)
    assert learner.settings.recency == 8.0


def test_a_setting_of_another_method_is_refused() -> None:
    with pytest.raises(InputError, match="there is no setting 'recency'"):
        make_learner("majority", {"recency": 8})


def test_the_names_of_methods_are_there_before_torch_and_scikit_learn() -> None:
    code = "import sys, chronospike.methods.registry; sys.exit(bool({'torch', 'sklearn'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_of_a_preset_a_method_takes_what_it_has() -> None:
    found = settings_for("label-propagation", {"rounds": 9, "epochs": 3}, {"seed": 4}).model_dump()
    assert (found["rounds"], found["seed"]) == (9, 4)
    assert "epochs" not in found


def test_what_is_given_comes_before_the_preset() -> None:
    assert settings_for("label-propagation", {"rounds": 9}, {"rounds": 2}).model_dump()["rounds"] == 2


def test_what_is_given_must_be_a_setting_of_the_method() -> None:
    with pytest.raises(InputError, match="there is no setting 'epochs' for label-propagation"):
        settings_for("label-propagation", {}, {"epochs": 3})
