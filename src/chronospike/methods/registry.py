"""Every method by name. A new one is its own file and a line here."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from chronospike.config import Settings, make_settings, preset_names, read_preset
from chronospike.errors import InputError, nearest

if TYPE_CHECKING:
    from chronospike.training.learner import Learner
    from chronospike.training.run_folder import RunFolder

DEFAULT = "chronospike"
METHODS = {
    "majority": "chronospike.methods.majority:Majority",
    "label-propagation": "chronospike.methods.label_propagation:LabelPropagation",
    "label-propagation-unweighted": "chronospike.methods.label_propagation:UnweightedLabelPropagation",
    "logistic": "chronospike.methods.logistic:Logistic",
    "labels": "chronospike.methods.labels:Labels",
    "deepwalk": "chronospike.methods.deepwalk:DeepWalkLearner",
    "node2vec": "chronospike.methods.node2vec:Node2Vec",
    "htne": "chronospike.methods.htne:HTNE",
    "m2dne": "chronospike.methods.m2dne:M2DNE",
    "dytriad": "chronospike.methods.dytriad:DyTriad",
    "mpnn-lstm": "chronospike.methods.mpnn_lstm:MPNNLSTMLearner",
    "jodie": "chronospike.methods.jodie:JODIE",
    "evolvegcn": "chronospike.methods.evolvegcn:EvolveGCNLearner",
    "tgat": "chronospike.methods.tgat:TGAT",
    "spikenet": "chronospike.methods.spikenet:SpikeNet",
    "dy-sign": "chronospike.methods.dy_sign:DySIGNLearner",
    "delay-dsgn": "chronospike.methods.delay_dsgn:DelayDSGN",
    "chronospike": "chronospike.methods.chronospike.learner:ChronoSpikeLearner",
}
# Where settings lie that can be checked before torch is imported; those of the others lie in the file of the method.
_SETTINGS = {"chronospike": "chronospike.methods.chronospike.settings:ChronoSpikeSettings"}
# What a comparison takes that names no methods: minutes, where all of them may take a day without a GPU.
COMPARED = ("majority", "label-propagation", "label-propagation-unweighted", "logistic", "labels", "chronospike")
# What the report of every run shows beside it.
REFERENCES = ("majority", "label-propagation", "logistic")


def learner_type(name: str) -> type[Learner[Any]]:
    """The class of a method; one that does not exist is an error that says the nearest name."""
    if name not in METHODS:
        raise InputError(f"there is no method '{name}'.{nearest(name, METHODS)} Methods: {', '.join(METHODS)}")
    found: type[Learner[Any]] = _imported(METHODS[name])
    return found


def settings_type(name: str) -> type[Settings]:
    """The settings of a method."""
    found: type[Settings] = _imported(_SETTINGS[name]) if name in _SETTINGS else learner_type(name).settings_type
    return found


def _imported(place: str) -> Any:
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)


def owned_preset(name: str) -> dict[str, Any]:
    """Names and values of a preset or a file, and under `method` whose they are: ours are those of one method."""
    values = read_preset(name)
    return {"method": DEFAULT, **values} if name in preset_names() else values


def settings_for(name: str, preset: Mapping[str, Any], given: Mapping[str, Any]) -> Settings:
    """The settings of a method: those of an `owned_preset`, then those given, which it must have.

    Of a preset of another method only the features and the split are taken; the rest are the method's own defaults.
    """
    kind = settings_type(name)
    fields = kind.model_fields if name == preset.get("method", name) else Settings.model_fields
    known = {key: value for key, value in preset.items() if key in fields}
    for key in given:
        if key not in kind.model_fields:
            raise InputError(f"there is no setting '{key}' for {name}.{nearest(key, kind.model_fields)}")
    return make_settings(kind, {**known, **given})


def learner_of(run: RunFolder, **changes: Any) -> Learner[Any]:
    """The method of a run with its settings, some of them changed."""
    kind = learner_type(run.method)
    return kind(run.settings(kind.settings_type).change(**changes))


def references(learner: Learner[Any]) -> list[Learner[Any]]:
    """The simple methods that stand beside every run of another, with its seed.

    Beside one with a second stage also the strongest, which takes as long as that stage does.
    """
    names = REFERENCES if getattr(learner.settings, "second_stage", "none") == "none" else (*REFERENCES, "labels")
    return [make_learner(name, {"seed": learner.settings.seed}) for name in names if name != learner.name]


def make_learner(name: str, values: Mapping[str, Any]) -> Learner[Any]:
    """A method with these settings, checked; the others keep their defaults."""
    kind = learner_type(name)
    return kind(make_settings(kind.settings_type, values))
