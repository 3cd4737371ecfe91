from __future__ import annotations

import pickle
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from chronospike.errors import StorageError
from chronospike.methods.chronospike.network import rebuild
from chronospike.nn.model import Architecture, ChronoSpike
from chronospike.nn.tree_features import TreeFeatures
from chronospike.training import weights
from chronospike.training.weights import class_names, description, load_weights, save_weights
from tests.small_runs import same_weights

SMALL = Architecture(inputs=3, classes=2, hidden=(4, 4), heads=2, temporal_heads=2, feedforward=4, max_steps=5)


def network(architecture: Architecture = SMALL) -> ChronoSpike:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return ChronoSpike(architecture).eval()


def saved(folder: Path, model: ChronoSpike | None = None) -> Path:
    path = folder / "model.safetensors"
    model = model or network()
    save_weights(model, path, asdict(model.architecture), ["café", "b"])
    return path


def read_model(path: Path) -> ChronoSpike:
    found = rebuild(*load_weights(path), path)
    assert isinstance(found, ChronoSpike)
    return found


@pytest.mark.parametrize(
    "change",
    [{}, {"neuron": "fixed"}, {"neuron": "relu"}, {"temporal": "lstm"}, {"aggregator": "sum"}, {"positions": "rotary"}],
)
def test_a_network_comes_back_as_it_was(tmp_path: Path, change: dict[str, str]) -> None:
    model = network(replace(SMALL, **change))  # type: ignore[arg-type]
    found = read_model(saved(tmp_path, model))
    assert found.architecture == model.architecture
    x = TreeFeatures(torch.randn(2, 14, 3, generator=torch.Generator().manual_seed(0)), (2, 4, 8))
    with torch.no_grad():
        assert torch.equal(found.eval()(x)[0], model(x)[0])


def test_reading_leaves_the_generator_alone(tmp_path: Path) -> None:
    path = saved(tmp_path)
    before = torch.random.get_rng_state()
    read_model(path)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_metadata_holds_the_classes_and_what_the_weights_belong_to(tmp_path: Path) -> None:
    _, metadata = load_weights(saved(tmp_path))
    assert class_names(metadata) == ["café", "b"]
    assert description(metadata)["hidden"] == [4, 4]


def test_the_same_network_gives_the_same_bytes(tmp_path: Path) -> None:
    contents = {saved(tmp_path).read_bytes() for _ in range(8)}
    assert len(contents) == 1


def test_any_changed_byte_is_noticed(tmp_path: Path) -> None:
    path = saved(tmp_path)
    content = path.read_bytes()
    for position in range(0, len(content), 61):
        path.write_bytes(content[:position] + bytes([content[position] ^ 4]) + content[position + 1 :])
        with pytest.raises(StorageError):
            read_model(path)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.99])
def test_a_truncated_file_is_called_damaged(tmp_path: Path, share: float) -> None:
    path = saved(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(StorageError, match="is damaged or not a weights file") as caught:
        load_weights(path)
    assert "\n" not in str(caught.value)


class Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (Path("executed"),)  # type: ignore[return-value]


def test_a_pickle_is_refused_and_not_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(StorageError, match="not a weights file"):
        read_model(path)
    assert not (tmp_path / "executed").exists()


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"none\.safetensors does not exist"):
        read_model(tmp_path / "none.safetensors")


def test_another_version_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(weights, "VERSION", "2")
        path = saved(tmp_path)
    with pytest.raises(StorageError, match="version '2'"):
        load_weights(path)


def test_a_tensor_of_another_shape_is_named(tmp_path: Path) -> None:
    model = network()
    model.architecture = replace(SMALL, classes=3)
    with pytest.raises(StorageError, match=r"'classifier.bias' has shape \[2\], and its network needs \[3\]"):
        read_model(saved(tmp_path, model))


def test_a_description_of_a_huge_network_takes_no_memory(tmp_path: Path) -> None:
    model = network()
    model.architecture = replace(SMALL, inputs=10**12)
    with pytest.raises(StorageError, match="its network needs"):
        read_model(saved(tmp_path, model))


def test_a_description_that_cannot_be_built_is_said(tmp_path: Path) -> None:
    model = network()
    model.architecture = replace(SMALL, heads=0)
    with pytest.raises(StorageError, match="cannot be built"):
        read_model(saved(tmp_path, model))


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    model = network()
    model.classifier.bias = None  # type: ignore[assignment]
    with pytest.raises(StorageError, match="lacks the tensor 'classifier.bias'"):
        read_model(saved(tmp_path, model))


def test_a_tensor_too_many_is_named(tmp_path: Path) -> None:
    model = network()
    model.register_buffer("stowaway", torch.zeros(1))
    with pytest.raises(StorageError, match="holds the tensor 'stowaway'"):
        read_model(saved(tmp_path, model))


READING = replace(SMALL, met=3, numbers=5, sequence_channels=4, head=6)


def test_a_network_that_reads_labels_of_roots_comes_back_as_it_was(tmp_path: Path) -> None:
    model = network(READING)
    assert model.standardise is not None
    model.standardise.fit(torch.randn(9, 5))
    found = read_model(saved(tmp_path, model))
    assert found.architecture == READING
    assert same_weights(found.state_dict(), model.state_dict())


def test_a_description_of_before_there_were_labels_of_roots_is_that_of_a_network_without(tmp_path: Path) -> None:
    model, path = network(), tmp_path / "model.safetensors"
    new = {"met", "numbers", "sequence_channels", "head", "head_dropout"}
    before = {name: value for name, value in asdict(SMALL).items() if name not in new}
    save_weights(model, path, before, ["a", "b"])
    assert read_model(path).architecture == SMALL


def saved_bag(folder: Path, count: Any) -> Path:
    """Three networks that are said to be `count`."""
    path = folder / "model.safetensors"
    save_weights(torch.nn.ModuleList(network() for _ in range(3)), path, {**asdict(SMALL), "folds": count}, ["a", "b"])
    return path


def test_several_networks_come_back_in_their_order(tmp_path: Path) -> None:
    models = [network() for _ in range(3)]
    for number, model in enumerate(models):
        torch.nn.init.constant_(model.classifier.bias, number)
    path = tmp_path / "model.safetensors"
    save_weights(torch.nn.ModuleList(models), path, {**asdict(SMALL), "folds": 3}, ["a", "b"])
    found = rebuild(*load_weights(path), path)
    assert isinstance(found, torch.nn.ModuleList)
    assert [found.state_dict()[f"{number}.classifier.bias"].tolist() for number in range(3)] == [[0, 0], [1, 1], [2, 2]]


@pytest.mark.parametrize("count", [0, 1, 2, 4, -3, 101, 10**12, "many", None, [3]])
def test_networks_of_another_number_than_is_said_are_refused_in_one_line(tmp_path: Path, count: Any) -> None:
    path = saved_bag(tmp_path, count)
    with pytest.raises(StorageError, match=r"model\.safetensors") as caught:
        rebuild(*load_weights(path), path)
    assert "\n" not in str(caught.value)
