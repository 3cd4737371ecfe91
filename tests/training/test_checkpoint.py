from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from chronospike.errors import OutOfSpaceError, StorageError
from chronospike.training.checkpoint import _digest as digest
from chronospike.training.checkpoint import load_checkpoint, read_state, save_checkpoint
from tests.small_runs import same_weights, small_trainer


def after_one_epoch(path: Path, **settings: Any) -> Any:
    trainer = small_trainer(epochs=3, **settings)
    next(trainer.epochs())
    save_checkpoint(trainer, path)
    return trainer


def test_the_state_can_be_read_without_a_trainer(tmp_path: Path) -> None:
    trainer = after_one_epoch(tmp_path / "state")
    assert read_state(tmp_path / "state") == trainer.state


@pytest.mark.parametrize("average", [0.0, 0.9])
def test_a_trainer_goes_on_to_the_same_bits(tmp_path: Path, average: float) -> None:
    path = tmp_path / "checkpoint" / "state.safetensors"
    first = after_one_epoch(path, weight_average=average)
    resumed = small_trainer(epochs=3, weight_average=average)
    load_checkpoint(resumed, path)
    assert resumed.state == first.state
    assert same_weights(resumed.best, first.best)
    assert same_weights(resumed.run().state_dict(), first.run().state_dict())
    whole = small_trainer(epochs=3, weight_average=average).run()
    assert same_weights(resumed.run().state_dict(), whole.state_dict())


def test_a_checkpoint_from_before_the_first_epoch_can_be_written(tmp_path: Path) -> None:
    # The best weights are then the current ones, and the optimiser has nothing to say.
    fresh = small_trainer()
    save_checkpoint(fresh, tmp_path / "state")
    resumed = small_trainer()
    load_checkpoint(resumed, tmp_path / "state")
    assert same_weights(resumed.run().state_dict(), small_trainer().run().state_dict())


def test_the_best_weights_are_kept_apart_from_the_current_ones(tmp_path: Path) -> None:
    trainer = after_one_epoch(tmp_path / "state")
    trainer.state.best_score = 2.0
    next(trainer.epochs())
    save_checkpoint(trainer, tmp_path / "state")
    resumed = small_trainer(epochs=3)
    load_checkpoint(resumed, tmp_path / "state")
    assert same_weights(resumed.best, trainer.best)
    assert same_weights(resumed.model.state_dict(), trainer.model.state_dict())
    assert not same_weights(resumed.best, resumed.model.state_dict())


def test_there_is_nothing_to_resume_without_a_file(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="there is nothing to resume"):
        load_checkpoint(small_trainer(), tmp_path / "state")


def test_a_truncated_checkpoint_is_refused(tmp_path: Path) -> None:
    after_one_epoch(tmp_path / "state")
    content = (tmp_path / "state").read_bytes()
    for length in (0, 5, len(content) - 1):
        (tmp_path / "state").write_bytes(content[:length])
        with pytest.raises(StorageError, match="state is damaged"):
            load_checkpoint(small_trainer(), tmp_path / "state")


def test_a_flipped_bit_is_noticed(tmp_path: Path) -> None:
    after_one_epoch(tmp_path / "state")
    content = bytearray((tmp_path / "state").read_bytes())
    content[-1] ^= 1
    (tmp_path / "state").write_bytes(content)
    with pytest.raises(StorageError, match="its checksum is wrong"):
        load_checkpoint(small_trainer(), tmp_path / "state")


def test_another_safetensors_file_is_refused(tmp_path: Path) -> None:
    after_one_epoch(tmp_path / "state")
    save_file(load_file(tmp_path / "state"), tmp_path / "other", {"format": "else"})
    with pytest.raises(StorageError, match="is not a checkpoint this chronospike can read"):
        load_checkpoint(small_trainer(), tmp_path / "other")


def test_a_checkpoint_of_another_network_does_not_fit(tmp_path: Path) -> None:
    after_one_epoch(tmp_path / "state")
    with pytest.raises(StorageError, match="state does not fit this run") as caught:
        load_checkpoint(small_trainer(hidden=[8, 8]), tmp_path / "state")
    assert "\n" not in str(caught.value)


def test_a_full_disk_keeps_the_checkpoint_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = after_one_epoch(tmp_path / "state")
    before = (tmp_path / "state").read_bytes()
    next(trainer.epochs())

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OutOfSpaceError, match="the disk is full"):
        save_checkpoint(trainer, tmp_path / "state")
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
    assert (tmp_path / "state").read_bytes() == before


def test_moments_that_were_saved_by_number_are_read(tmp_path: Path) -> None:
    """As before they were named by their parameters."""
    path = tmp_path / "state"
    first = after_one_epoch(path)
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    numbers = {name: str(number) for number, (name, _) in enumerate(first.model.named_parameters())}
    tensors = {}
    for key, value in load_file(path).items():
        kind, _, rest = key.partition(".")
        name, _, moment = rest.rpartition(".")
        tensors[f"optimiser.{numbers[name]}.{moment}" if kind == "optimiser" else key] = value
    save_file(tensors, path, {**metadata, "sha256": digest(tensors, metadata["state"])})
    resumed = small_trainer(epochs=3)
    load_checkpoint(resumed, path)
    assert same_weights(resumed.run().state_dict(), first.run().state_dict())
