from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import joblib  # type: ignore[import-untyped]
import numpy as np
import pytest
import torch
import yaml
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV

from chronospike.data.attributes import Column
from chronospike.data.csr import history_and_snapshot
from chronospike.data.events import EventLog
from chronospike.data.graph import DynamicGraph
from chronospike.data.ids import NodeIds
from chronospike.data.synthetic import synthetic_graph
from chronospike.errors import InputError, StorageError
from chronospike.estimator import ChronoSpikeClassifier
from chronospike.methods.chronospike.network import ChronoSpikeNetwork
from chronospike.methods.chronospike.settings import ChronoSpikeSettings as Settings
from chronospike.nn.dispatch import PLAIN
from chronospike.nn.model import ChronoSpike
from chronospike.training.gradient import GradientFitted

SMALL: dict[str, Any] = {
    "hidden": (16, 8), "heads": 2, "temporal_heads": 2, "feedforward": 16, "fanouts": (3, 2), "dropout": 0.2,
    "epochs": 2, "learning_rate": 0.02, "folds": 0, "second_stage": "none", "device": "cpu",
}  # fmt: skip
TRAIN, TEST = np.arange(80), np.arange(80, 120)


def easy_graph() -> DynamicGraph:
    """Two communities whose features lie apart."""
    graph = synthetic_graph(nodes=120, steps=5, classes=2, structure=0.9, timing=0.0, feature_dim=8)
    assert graph.features is not None
    assert graph.labels is not None
    return graph.with_features(graph.features + 2 * graph.labels[None, :, None].astype(np.float32))


@pytest.fixture(scope="module")
def graph() -> DynamicGraph:
    return easy_graph()


@pytest.fixture(scope="module")
def fitted(graph: DynamicGraph) -> ChronoSpikeClassifier:
    return ChronoSpikeClassifier(graph, **SMALL).fit(TRAIN)


@contextmanager
def float64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def weights(classifier: ChronoSpikeClassifier) -> torch.Tensor:
    return torch.cat([value.reshape(-1) for value in classifier.model_.state_dict().values()])


def with_other_future(graph: DynamicGraph, last: int) -> DynamicGraph:
    """After step `last` every edge leads elsewhere and every feature is another."""
    rows, steps, neighbours = graph.snapshot.entries()
    later = steps > last
    rows, neighbours = (np.where(later, (ends * 7 + 3) % graph.num_nodes, ends) for ends in (rows, neighbours))
    history, snapshot = history_and_snapshot(rows, neighbours, steps, graph.num_nodes, graph.num_steps)
    assert graph.features is not None
    features = graph.features.copy()
    features[last + 1 :] = features[last + 1 :] * -3 + 1
    return replace(graph, history=history, snapshot=snapshot, features=features)


def test_better_than_chance_on_nodes_it_was_not_given(graph: DynamicGraph) -> None:
    classifier = ChronoSpikeClassifier(graph, **{**SMALL, "epochs": 8, "batch_size": 16}).fit(TRAIN)
    assert classifier.score(TEST) > 0.8


def test_the_same_seed_gives_the_same_bits_and_another_does_not(
    graph: DynamicGraph, fitted: ChronoSpikeClassifier
) -> None:
    again = ChronoSpikeClassifier(**SMALL).fit(graph, TRAIN)
    other = ChronoSpikeClassifier(**SMALL, seed=1).fit(graph, TRAIN)
    assert torch.equal(weights(again), weights(fitted))
    assert not torch.equal(weights(other), weights(fitted))


def test_both_forms_of_a_call_agree(graph: DynamicGraph, fitted: ChronoSpikeClassifier) -> None:
    np.testing.assert_array_equal(fitted.predict_proba(TEST), fitted.predict_proba(graph, TEST))
    np.testing.assert_array_equal(fitted.embed(nodes=TEST), fitted.embed()[TEST])


def test_fit_leaves_the_callers_generator_alone(graph: DynamicGraph) -> None:
    before = torch.random.get_rng_state()
    ChronoSpikeClassifier(**{**SMALL, "epochs": 1}).fit(graph)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_fit_leaves_torchs_settings_and_the_environment_as_they_were(graph: DynamicGraph) -> None:
    def settings() -> tuple[Any, ...]:
        precision = torch.get_float32_matmul_precision()
        return torch.get_num_threads(), precision, torch.get_default_dtype(), torch.is_grad_enabled(), dict(os.environ)

    before = settings()
    ChronoSpikeClassifier(**{**SMALL, "epochs": 1}).fit(graph)
    assert settings() == before


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, lambda: torch.device("meta"), float64])
def test_the_callers_torch_settings_change_nothing(
    graph: DynamicGraph, fitted: ChronoSpikeClassifier, tmp_path: Path, mode: Callable[[], AbstractContextManager[Any]]
) -> None:
    expected, embeddings = fitted.predict_proba(TEST), fitted.embed(nodes=TEST)
    path = fitted.save(tmp_path / "saved")
    with mode():
        again = ChronoSpikeClassifier(graph, **SMALL).fit(TRAIN)
        loaded = ChronoSpikeClassifier.load(path, graph, device="cpu")
        for classifier in (fitted, again, loaded):
            np.testing.assert_array_equal(classifier.predict_proba(TEST), expected)
            np.testing.assert_array_equal(classifier.embed(nodes=TEST), embeddings)


def test_fits_and_predictions_keep_freed_memory_as_commands_do(
    graph: DynamicGraph, fitted: ChronoSpikeClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    monkeypatch.setattr("chronospike.estimator.keep_freed_memory", lambda: calls.append("kept"))
    ChronoSpikeClassifier(**{**SMALL, "epochs": 1}).fit(graph)
    assert calls == ["kept"]
    ChronoSpikeClassifier.load(fitted.save(tmp_path / "saved"), graph, device="cpu").predict(TEST)
    assert calls == ["kept", "kept"]


def test_predictions_are_the_likeliest_classes_of_the_graph(fitted: ChronoSpikeClassifier) -> None:
    probabilities = fitted.predict_proba(TEST)
    assert fitted.classes_.tolist() == ["0", "1"]
    assert fitted.predict(TEST).tolist() == fitted.classes_[probabilities.argmax(axis=1)].tolist()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)


def test_labels_of_other_nodes_never_reach_the_fit(graph: DynamicGraph) -> None:
    assert graph.labels is not None
    settings = {**SMALL, "label_inputs": True}
    found = ChronoSpikeClassifier(graph, **settings).fit(TRAIN)
    labels = graph.labels.copy()
    labels[TEST] = 1 - labels[TEST]
    other = ChronoSpikeClassifier(graph.with_labels(labels, graph.class_names), **settings).fit(TRAIN)
    assert torch.equal(weights(found), weights(other))
    np.testing.assert_array_equal(found.predict_proba(smooth=True), other.predict_proba(smooth=True))


def test_labels_that_are_given_count_and_the_graphs_do_not(graph: DynamicGraph) -> None:
    assert graph.labels is not None
    classifier = ChronoSpikeClassifier(graph, **{**SMALL, "epochs": 8, "batch_size": 16})
    names = np.where(graph.labels == 0, "dog", "cat")
    classifier.fit(TRAIN, names[TRAIN])
    assert classifier.classes_.tolist() == ["cat", "dog"]
    assert classifier.score(TEST, names[TEST]) > 0.8
    with pytest.raises(InputError, match="score needs y"):
        classifier.score(TEST)


def test_numbers_come_back_as_numbers(graph: DynamicGraph) -> None:
    classifier = ChronoSpikeClassifier(graph, **{**SMALL, "epochs": 1}).fit([0, 1, 2, 3, 4, 5], [7, 7, 7, -1, -1, -1])
    assert classifier.classes_.tolist() == [-1, 7]
    assert set(classifier.predict().tolist()) <= {-1, 7}


@pytest.mark.parametrize("smooth", [False, True])
@pytest.mark.parametrize("last", [0, 2])
def test_as_of_a_step_nothing_later_matters(
    graph: DynamicGraph, fitted: ChronoSpikeClassifier, last: int, smooth: bool
) -> None:
    other = with_other_future(graph, last)
    found = fitted.predict_proba(graph, as_of=last, smooth=smooth)
    np.testing.assert_array_equal(found, fitted.predict_proba(other, as_of=last, smooth=smooth))
    np.testing.assert_array_equal(fitted.embed(graph, as_of=last), fitted.embed(other, as_of=last))
    assert not np.array_equal(fitted.embed(graph), fitted.embed(other))


def test_as_of_the_last_step_is_everything(fitted: ChronoSpikeClassifier) -> None:
    np.testing.assert_array_equal(fitted.predict_proba(TEST, as_of=4), fitted.predict_proba(TEST))


@pytest.mark.parametrize("as_of", ["", "NaT", "now", "today", float("nan"), 5, -1])
def test_an_as_of_that_names_no_step_is_refused(fitted: ChronoSpikeClassifier, as_of: Any) -> None:
    with pytest.raises(InputError, match="as_of"):
        fitted.embed([0], as_of=as_of)


def test_smoothing_as_of_a_step_spreads_no_later_edge(graph: DynamicGraph, fitted: ChronoSpikeClassifier) -> None:
    other = with_other_future(graph, 2)
    for as_of, is_same in ((2, True), (4, False)):
        one, two = (fitted.predict_proba(g, TEST, as_of=as_of, smooth=True) for g in (graph, other))
        assert np.array_equal(one, two) == is_same


def test_nodes_are_taken_by_the_users_own_ids(graph: DynamicGraph, fitted: ChronoSpikeClassifier) -> None:
    named = replace(graph, ids=NodeIds.of([f"u{k:03d}" for k in range(120)]))
    model = ChronoSpikeClassifier(named, **SMALL).fit(TRAIN)
    assert np.array_equal(model.predict_proba(ids=["u100", "u007"]), model.predict_proba([100, 7]))
    assert np.array_equal(model.embed(ids="u100"), model.embed([100]))
    with pytest.raises(InputError, match="1 id\\(s\\) are not in the graph, the first: 'nobody'"):
        model.predict(ids=["u001", "nobody"])
    with pytest.raises(InputError, match="by index or by your own ids, not both"):
        fitted.predict([1], ids=[1])


@pytest.mark.parametrize("features", ["auto", "fastrp", "own+fastrp", "own+deepwalk"])
def test_features_that_are_not_there_are_made(graph: DynamicGraph, features: str, tmp_path: Path) -> None:
    given = graph if features.startswith("own") else graph.with_features(None)
    made = {"feature_dimension": 4, "feature_walks": 1, "feature_method": "fastrp", "features": features}
    model = ChronoSpikeClassifier(given, **{**SMALL, **made}).fit(TRAIN)
    assert isinstance(model.model_, ChronoSpike)
    assert model.model_.architecture.inputs == (12 if features.startswith("own") else 4)
    expected = model.predict_proba(TEST)
    again = ChronoSpikeClassifier.load(model.save(tmp_path / "m"), given, device="cpu")
    if "deepwalk" not in features:
        assert np.array_equal(again.predict_proba(TEST), expected)


def test_deepwalk_features_of_other_edges_are_refused(graph: DynamicGraph) -> None:
    made = {"feature_dimension": 4, "feature_walks": 1, "feature_method": "deepwalk"}
    model = ChronoSpikeClassifier(graph.with_features(None), **{**SMALL, **made}).fit(TRAIN)
    other = with_other_future(graph, 2).with_features(None)
    with pytest.raises(InputError, match="trained on DeepWalk or SVD features, and those of another graph"):
        model.predict(other)


def with_set(graph: DynamicGraph, **recipe: Any) -> DynamicGraph:
    """The graph with features that its folder says were made by the recipe."""
    values = np.random.default_rng(0).normal(size=(5, 120, 4)).astype(np.float32)
    made = {"method": "deepwalk", "seed": 0, "edges": "a", **recipe}
    return graph.with_features(None).with_made_features(values, recipes=[made])


@pytest.mark.parametrize(
    ("recipe", "reason"),
    [
        ({"edges": "b"}, "trained on DeepWalk or SVD features, and those of another graph"),
        ({"seed": 1}, "trained on features with seed 0, and those of this graph have 1"),
        ({"method": "svd"}, "trained on features with method deepwalk, and those of this graph have svd"),
    ],
)
def test_a_feature_set_of_another_meaning_is_refused(
    graph: DynamicGraph, tmp_path: Path, recipe: dict[str, Any], reason: str
) -> None:
    model = ChronoSpikeClassifier(with_set(graph), **{**SMALL, "epochs": 1}).fit(TRAIN)
    for one in (model, pickle.loads(pickle.dumps(model)), ChronoSpikeClassifier.load(model.save(tmp_path / "m"))):
        with pytest.raises(InputError, match=reason):
            one.predict(with_set(graph, **recipe))


@pytest.mark.parametrize(
    "recipe",
    [{}, {"edges": "b", "start": "a"}, {"method": "fastrp", "edges": "b"}, {"method": "activity", "edges": "b"}],
)
def test_a_feature_set_of_the_same_meaning_is_used(graph: DynamicGraph, recipe: dict[str, Any]) -> None:
    trained = with_set(graph, method=recipe.get("method", "deepwalk"))
    model = ChronoSpikeClassifier(trained, **{**SMALL, "epochs": 1}).fit(TRAIN)
    assert np.array_equal(model.predict_proba(with_set(graph, **recipe), TEST), model.predict_proba(TEST))


def test_features_that_fit_made_are_not_mistaken_for_a_set_of_the_graph(graph: DynamicGraph) -> None:
    made = {"feature_dimension": 4, "feature_walks": 1, "feature_method": "deepwalk"}
    model = ChronoSpikeClassifier(graph.with_features(None), **{**SMALL, **made}).fit(TRAIN)
    with pytest.raises(InputError, match="trained on features with seed 0, and those of this graph have 1"):
        model.predict(with_set(graph, seed=1))


def test_embeddings_of_a_run_know_what_comes_later(graph: DynamicGraph) -> None:
    model = ChronoSpikeClassifier(with_set(graph, method="run"), **{**SMALL, "epochs": 1}).fit(TRAIN)
    with pytest.raises(InputError, match="predictions as of a date would use later information"):
        model.predict(TEST, as_of=2)


def test_fastrp_features_of_strangers_are_refused(graph: DynamicGraph) -> None:
    bare = graph.with_features(None)
    model = ChronoSpikeClassifier(bare, **{**SMALL, "feature_dimension": 4, "feature_method": "fastrp"}).fit(TRAIN)
    with pytest.raises(InputError, match="none of its training nodes is in this graph"):
        model.predict(replace(bare, ids=NodeIds.of(np.arange(1000, 1000 + graph.num_nodes))))


def test_attributes_are_encoded_as_in_the_fit(graph: DynamicGraph, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    amount = np.exp(rng.normal(size=120)).astype(np.float32)
    colour = rng.integers(0, 2, 120).astype(np.float32)
    columns = (Column("amount"), Column("colour", "category", ("blue", "red")))
    model = ChronoSpikeClassifier(**SMALL).fit(graph.with_features(np.stack([amount, colour], 1), columns), TRAIN)
    expected = model.predict_proba(TEST)
    model = ChronoSpikeClassifier.load(model.save(tmp_path / "m"), device="cpu")
    # Other columns before them, a category more, which shifts the codes, and half of the nodes.
    wider = (Column("new"), Column("colour", "category", ("amber", "blue", "red")), Column("amount"))
    values = np.stack([np.ones(120, dtype=np.float32), colour + 1, amount], axis=1)
    with pytest.warns(UserWarning, match="does not use: new"):
        again = model.predict_proba(graph.with_features(values, wider), TEST)
    assert np.array_equal(again, expected)
    with pytest.raises(InputError, match="needs the attribute 'amount'"):
        model.predict(graph.with_features(values[:, :2], wider[:2]))


def test_a_graph_without_the_attributes_of_the_fit_is_refused(graph: DynamicGraph) -> None:
    table = graph.with_features(np.random.default_rng(0).normal(size=(120, 2)))
    classifier = ChronoSpikeClassifier(table, **{**SMALL, "epochs": 1}).fit(TRAIN)
    with pytest.raises(InputError, match="the graph has no attributes of its own"):
        classifier.predict(graph.with_features(None))


def test_smoothing_uses_the_labels_of_the_fit(fitted: ChronoSpikeClassifier) -> None:
    smoothed = fitted.predict_proba(TEST, smooth=True)
    np.testing.assert_allclose(smoothed.sum(axis=1), 1)
    assert set(fitted.smoothing_) == {"correct", "smooth", "recency", "validation_micro_f1"}


def test_score_is_scikit_learns_accuracy(graph: DynamicGraph, fitted: ChronoSpikeClassifier) -> None:
    truth = np.array(graph.class_names)[np.asarray(graph.labels)]
    predicted = fitted.predict(TEST)
    assert fitted.score(TEST, truth[TEST]) == accuracy_score(truth[TEST], predicted)
    weight = np.arange(40)
    weighted = accuracy_score(truth[TEST], predicted, sample_weight=weight)
    assert fitted.score(TEST, truth[TEST], sample_weight=weight) == pytest.approx(weighted)


def test_numbers_are_not_scored_against_classes_that_are_text(
    graph: DynamicGraph, fitted: ChronoSpikeClassifier
) -> None:
    assert graph.labels is not None
    with pytest.raises(InputError, match="y holds int64, and the classes of the fit are such as '0'; write both alike"):
        fitted.score(TEST, graph.labels[TEST])


def test_score_without_nodes_takes_those_the_fit_was_not_given(fitted: ChronoSpikeClassifier) -> None:
    assert fitted.score() == fitted.score(TEST)


def test_a_saved_classifier_gives_the_same_bits(
    tmp_path: Path, graph: DynamicGraph, fitted: ChronoSpikeClassifier
) -> None:
    found = ChronoSpikeClassifier.load(fitted.save(tmp_path / "model"), graph, device="cpu")
    np.testing.assert_array_equal(found.predict_proba(smooth=True), fitted.predict_proba(smooth=True))
    assert found.predict(TEST).tolist() == fitted.predict(TEST).tolist()
    assert found.get_params() == fitted.get_params()


def test_a_classifier_loaded_takes_the_kernels_of_its_settings(graph: DynamicGraph, tmp_path: Path) -> None:
    plain = ChronoSpikeClassifier(graph, **{**SMALL, "epochs": 1}, kernels="plain", refit=True).fit(TRAIN)
    found = ChronoSpikeClassifier.load(plain.save(tmp_path / "model"), graph, device="cpu")
    used = found._on(graph)
    assert isinstance(used, GradientFitted)
    network = used.network
    assert isinstance(network, ChronoSpikeNetwork)
    plan = network.plan
    assert (plan.attention, plan.neurons, plan.readout) == (PLAIN.attention, PLAIN.neurons, PLAIN.readout)


def test_a_classifier_loaded_without_a_graph_takes_it_with_the_call(
    tmp_path: Path, graph: DynamicGraph, fitted: ChronoSpikeClassifier
) -> None:
    found = ChronoSpikeClassifier.load(fitted.save(tmp_path / "model"), device="cpu")
    np.testing.assert_array_equal(found.predict_proba(graph, TEST), fitted.predict_proba(TEST))
    with pytest.raises(InputError, match="there is no graph"):
        found.predict(TEST)


def test_tampered_weights_are_refused(tmp_path: Path, fitted: ChronoSpikeClassifier) -> None:
    weights_file = fitted.save(tmp_path / "model") / "model.safetensors"
    content = bytearray(weights_file.read_bytes())
    content[-1] ^= 1
    weights_file.write_bytes(content)
    with pytest.raises(StorageError, match="is damaged or not a weights file"):
        ChronoSpikeClassifier.load(tmp_path / "model")


def test_settings_of_another_network_are_refused(tmp_path: Path, fitted: ChronoSpikeClassifier) -> None:
    settings = fitted.save(tmp_path / "model") / "config.yaml"
    settings.write_text(settings.read_text().replace("feedforward: 16", "feedforward: 32"))
    with pytest.raises(StorageError, match="do not belong together"):
        ChronoSpikeClassifier.load(tmp_path / "model")


def test_directed_edges_are_needed_again_where_they_were_there(tmp_path: Path) -> None:
    directed, undirected = (
        synthetic_graph(nodes=120, steps=5, classes=2, timing=0.0, feature_dim=8, directed=way) for way in (True, False)
    )
    fitted = ChronoSpikeClassifier(directed, **{**SMALL, "epochs": 1}).fit(TRAIN)
    loaded = ChronoSpikeClassifier.load(fitted.save(tmp_path / "model"), directed, device="cpu")
    np.testing.assert_array_equal(loaded.predict_proba(TEST), fitted.predict_proba(TEST))
    with pytest.raises(InputError, match="fitted on a graph with directed edges. Import this one with directed=True"):
        loaded.predict(undirected, TEST)


def test_save_does_not_replace_what_is_there(tmp_path: Path, fitted: ChronoSpikeClassifier) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(InputError):
            fitted.save(tmp_path, overwrite=overwrite)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_clone_is_unfitted_and_shares_the_graph(graph: DynamicGraph, fitted: ChronoSpikeClassifier) -> None:
    copy = clone(fitted)
    assert copy.graph is graph
    assert copy.get_params() == fitted.get_params()
    assert not hasattr(copy, "model_")


def test_a_pickled_classifier_gives_the_same_bits(fitted: ChronoSpikeClassifier) -> None:
    found = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(found.predict_proba(TEST), fitted.predict_proba(TEST))


def test_get_params_names_every_setting() -> None:
    params = ChronoSpikeClassifier(epochs=3).get_params()
    assert set(params) == {"graph", "preset", "device", "verbose", *Settings.model_fields}
    assert (params["epochs"], params["p"]) == (3, 0.5)


def test_a_preset_gives_way_to_what_is_set_by_name(tmp_path: Path) -> None:
    preset = tmp_path / "mine.yaml"
    preset.write_text("epochs: 7\np: 0.25\nfanouts: [4, 3]\n")
    params = clone(ChronoSpikeClassifier(epochs=3).set_params(preset=str(preset))).get_params()
    assert (params["epochs"], params["p"], params["fanouts"]) == (3, 0.25, (4, 3))


def test_the_settings_of_a_run_are_a_preset_if_they_are_of_this_method(graph: DynamicGraph, tmp_path: Path) -> None:
    preset = tmp_path / "config.yaml"
    preset.write_text("method: chronospike\nepochs: 7\n")
    assert ChronoSpikeClassifier(preset=str(preset)).get_params()["epochs"] == 7
    preset.write_text("method: tgat\nepochs: 7\n")
    with pytest.raises(InputError, match=r"config.yaml holds settings of tgat, and this is chronospike"):
        ChronoSpikeClassifier(graph, preset=str(preset)).fit()


def test_a_run_is_no_saved_model(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("method: chronospike\nepochs: 7\n")
    with pytest.raises(StorageError, match=r"is a run, not a model that save wrote. Use it with: chronospike predict"):
        ChronoSpikeClassifier.load(tmp_path)


def test_grid_search_over_nodes(graph: DynamicGraph) -> None:
    assert graph.labels is not None
    names = np.array(graph.class_names)[graph.labels]
    # At the first of the rates the weights stay those of the start, which guess.
    grid = {"learning_rate": np.array([1e-9, 0.02]), "epochs": [np.int64(6)]}
    search = GridSearchCV(ChronoSpikeClassifier(graph, **{**SMALL, "batch_size": 16}), grid, cv=2)
    search.fit(np.arange(120), names)
    assert search.best_params_["learning_rate"] == 0.02
    assert search.best_estimator_.graph is graph
    assert set(search.predict(TEST)) <= {"0", "1"}


def test_scikit_learn_takes_it_for_a_classifier(fitted: ChronoSpikeClassifier) -> None:
    assert is_classifier(fitted)
    assert not fitted.__sklearn_tags__().input_tags.two_d_array
    assert "ChronoSpikeClassifier" in fitted._repr_html_()


def test_repr_shows_what_was_given(graph: DynamicGraph) -> None:
    assert repr(ChronoSpikeClassifier(graph, p=0.3)) == "ChronoSpikeClassifier(graph=<120 nodes, 5 steps>, p=0.3)"


@pytest.mark.parametrize("method", ["predict", "predict_proba", "embed", "score", "save"])
def test_unfitted_use_is_scikit_learns_error(graph: DynamicGraph, method: str) -> None:
    with pytest.raises(NotFittedError):
        getattr(ChronoSpikeClassifier(graph), method)(TEST)


def test_an_unknown_setting_gets_the_nearest_name() -> None:
    with pytest.raises(InputError, match="no setting 'epoch'. Did you mean 'epochs'"):
        ChronoSpikeClassifier(epoch=3)
    with pytest.raises(InputError, match="no setting 'devise'. Did you mean 'device'"):
        ChronoSpikeClassifier().set_params(devise="cpu")


def test_a_value_out_of_range_is_said_when_fitting(graph: DynamicGraph) -> None:
    with pytest.raises(InputError, match="setting 'p' is 2"):
        ChronoSpikeClassifier(p=2).fit(graph)


def test_a_node_that_is_not_in_the_graph_is_named(graph: DynamicGraph, fitted: ChronoSpikeClassifier) -> None:
    with pytest.raises(InputError, match="node 120 "):
        fitted.predict([3, 120])
    with pytest.raises(InputError, match="node -2 "):
        ChronoSpikeClassifier(graph).fit([0, 1, -2])


def test_calls_that_make_no_sense_are_explained(graph: DynamicGraph, fitted: ChronoSpikeClassifier) -> None:
    with pytest.raises(InputError, match="there is no graph"):
        ChronoSpikeClassifier().fit([0, 1], ["a", "b"])
    with pytest.raises(InputError, match="the first of three arguments is the graph"):
        ChronoSpikeClassifier(graph).fit([0, 1], [0, 1], ["a", "b"])
    with pytest.raises(InputError, match="nodes are given twice"):
        fitted.predict([0, 1], [2, 3])
    with pytest.raises(InputError, match="fit was given every labelled one"):
        ChronoSpikeClassifier(graph, **{**SMALL, "epochs": 1}).fit().score()


def test_features_of_another_width_are_refused(graph: DynamicGraph, fitted: ChronoSpikeClassifier) -> None:
    assert graph.features is not None
    with pytest.raises(InputError, match="needs the attribute 'x7', which the graph does not have"):
        fitted.predict(graph.with_features(graph.features[..., :7]))


def test_verbose_writes_a_line_per_epoch_to_standard_error(
    graph: DynamicGraph, capsys: pytest.CaptureFixture[str]
) -> None:
    ChronoSpikeClassifier(graph, verbose=True, **SMALL).fit(TRAIN)
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.split(":")[0] for line in err.splitlines()] == ["epoch 1", "epoch 2"]


BAG: dict[str, Any] = {
    **SMALL, "label_sequences": True, "label_features": True, "activity": True, "sequence_channels": 8, "head": 16,
    "folds": 3, "second_stage": "logistic", "calibrate": True,
}  # fmt: skip


@pytest.fixture(scope="module")
def bag(graph: DynamicGraph) -> ChronoSpikeClassifier:
    return ChronoSpikeClassifier(graph, **BAG).fit(TRAIN)


def test_a_bag_holds_its_networks_what_follows_them_and_what_is_said_out_of_fold(bag: ChronoSpikeClassifier) -> None:
    assert isinstance(bag.model_, torch.nn.ModuleList)
    assert len(bag.model_) == 3
    assert bag.final_.stages
    assert bag.final_.chosen_on == "out-of-fold"
    assert bag.out_of_fold_ is not None
    assert sorted(bag.out_of_fold_["node"].to_pylist()) == TRAIN.tolist()


def test_a_bag_predicts_shares_and_embeds_with_all_networks(bag: ChronoSpikeClassifier) -> None:
    np.testing.assert_allclose(bag.predict_proba().sum(axis=1), 1)
    assert bag.embed(TEST).shape == (40, 3 * 8)
    assert np.array_equal(bag.predict_proba(TEST), bag.predict_proba()[TEST])


def test_a_saved_bag_gives_the_same_bits(tmp_path: Path, graph: DynamicGraph, bag: ChronoSpikeClassifier) -> None:
    found = ChronoSpikeClassifier.load(bag.save(tmp_path / "model"), graph, device="cpu")
    np.testing.assert_array_equal(found.predict_proba(), bag.predict_proba())
    np.testing.assert_array_equal(found.predict_proba(smooth=True), bag.predict_proba(smooth=True))
    np.testing.assert_array_equal(found.embed(TEST), bag.embed(TEST))
    assert found.out_of_fold_ is not None
    assert found.out_of_fold_.equals(bag.out_of_fold_)
    assert found.get_params() == bag.get_params()


@pytest.mark.parametrize("how", ["pickle", "joblib"])
def test_a_bag_sent_to_another_process_gives_the_same_bits(
    bag: ChronoSpikeClassifier, how: str, tmp_path: Path
) -> None:
    if how == "pickle":
        found = pickle.loads(pickle.dumps(bag))
    else:
        joblib.dump(bag, tmp_path / "bag")
        found = joblib.load(tmp_path / "bag")
    np.testing.assert_array_equal(found.predict_proba(), bag.predict_proba())


def test_a_clone_of_a_bag_is_unfitted_and_fits_to_the_same_bits(bag: ChronoSpikeClassifier) -> None:
    copy = clone(bag)
    assert not hasattr(copy, "model_")
    np.testing.assert_array_equal(copy.fit(TRAIN).predict_proba(TEST), bag.predict_proba(TEST))


def test_a_bag_is_used_on_a_graph_that_has_grown(graph: DynamicGraph, bag: ChronoSpikeClassifier) -> None:
    """Two nodes more, whose ids come first; all steps but the last are as they were."""
    rows, steps, neighbours = graph.snapshot.entries()
    source = np.concatenate([rows + 2, [0, 1], [3, 4]])
    target = np.concatenate([neighbours + 2, [3, 4], [0, 1]])
    history, snapshot = history_and_snapshot(source, target, np.append(steps, [4] * 4), 122, 5)
    assert graph.features is not None
    assert graph.labels is not None
    assert graph.events is not None
    log = graph.events
    ends = np.append(log.source + 2, [0, 1]), np.append(log.target + 2, [3, 4])
    times, event_steps = np.append(log.time, log.time[[-1, -1]]), np.append(log.step, np.array([4, 4], np.int32))
    grown = replace(
        graph,
        history=history,
        snapshot=snapshot,
        events=EventLog.of(*ends, times, event_steps, 5),
        ids=NodeIds.of([-2, -1, *range(120)]),
        labels=np.concatenate([[0, 1], graph.labels]),
        features=np.concatenate([graph.features[:, :2], graph.features], axis=1),
    )
    np.testing.assert_allclose(bag.predict_proba(grown).sum(axis=1), 1)
    found = bag.predict_proba(grown, np.arange(2, 122), as_of=3)
    np.testing.assert_array_equal(found, bag.predict_proba(graph, as_of=3))


@pytest.mark.parametrize("smooth", [False, True])
def test_a_bag_as_of_a_step_is_blind_to_what_came_later(
    graph: DynamicGraph, bag: ChronoSpikeClassifier, smooth: bool
) -> None:
    other = with_other_future(graph, 2)
    one, two = (bag.predict_proba(each, as_of=2, smooth=smooth) for each in (graph, other))
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(bag.embed(graph), bag.embed(other))


def test_a_bag_on_a_graph_without_its_labelled_nodes_still_predicts(
    graph: DynamicGraph, bag: ChronoSpikeClassifier
) -> None:
    others = replace(graph, ids=NodeIds.of([f"other{k}" for k in range(120)]))
    np.testing.assert_allclose(bag.predict_proba(others).sum(axis=1), 1)


@pytest.mark.parametrize("name", ["final_stage.safetensors", "out_of_fold.parquet"])
def test_a_damaged_file_of_a_bag_is_named(tmp_path: Path, bag: ChronoSpikeClassifier, name: str) -> None:
    (bag.save(tmp_path / "model") / name).write_bytes(b"nothing of the kind")
    with pytest.raises(StorageError, match=f"{name} is damaged"):
        ChronoSpikeClassifier.load(tmp_path / "model")


def test_a_folder_of_before_there_were_folds_still_loads(tmp_path: Path, graph: DynamicGraph) -> None:
    reads: dict[str, Any] = dict.fromkeys(("label_sequences", "label_features", "activity", "calibrate"), False)
    fitted = ChronoSpikeClassifier(graph, **SMALL, **reads).fit(TRAIN)
    folder = fitted.save(tmp_path / "model")
    (folder / "final_stage.safetensors").unlink()
    new = {*BAG} - {*SMALL} | {"head_dropout", "folds", "second_stage"}
    settings = yaml.safe_load((folder / "config.yaml").read_text())
    (folder / "config.yaml").write_text(yaml.safe_dump({k: v for k, v in settings.items() if k not in new}))
    found = ChronoSpikeClassifier.load(folder, graph, device="cpu")
    np.testing.assert_array_equal(found.predict_proba(), fitted.predict_proba())


def test_the_width_of_a_head_that_is_not_there_does_not_matter_when_loading(
    tmp_path: Path, graph: DynamicGraph
) -> None:
    model = ChronoSpikeClassifier(graph, **{**SMALL, "epochs": 1}, head=32, sequence_channels=4).fit(TRAIN)
    found = ChronoSpikeClassifier.load(model.save(tmp_path / "model"), graph, device="cpu")
    np.testing.assert_array_equal(found.predict_proba(TEST), model.predict_proba(TEST))


def test_what_is_no_graph_is_refused_and_shown(tmp_path: Path) -> None:
    model = ChronoSpikeClassifier(str(tmp_path))  # type: ignore[arg-type]
    assert repr(model) == f"ChronoSpikeClassifier(graph={str(tmp_path)!r})"
    with pytest.raises(InputError, match=r"graph is a str; give a DynamicGraph, such as open_graph\(folder\) returns"):
        model.fit()


def test_ids_may_be_numbers_of_numpy_or_a_tensor(fitted: ChronoSpikeClassifier) -> None:
    expected = fitted.predict_proba([5, 6])
    assert np.array_equal(fitted.predict_proba(ids=np.int64(5)), expected[:1])
    assert np.array_equal(fitted.predict_proba(ids=torch.tensor([5, 6])), expected)
    with pytest.raises(InputError, match="1 id\\(s\\) are not in the graph, the first: 999$"):
        fitted.predict(ids=np.array([5, 999]))


def test_scikit_learns_name_of_the_seed_gets_ours() -> None:
    with pytest.raises(InputError, match="no setting 'random_state'. It is called 'seed' here"):
        ChronoSpikeClassifier(random_state=0)


def test_weights_of_another_length_are_refused(fitted: ChronoSpikeClassifier) -> None:
    with pytest.raises(InputError, match=r"sample_weight has shape \[1\], and there are 2 nodes"):
        fitted.score([0, 1], ["0", "1"], sample_weight=[1])
