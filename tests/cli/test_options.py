from __future__ import annotations

import pytest

from chronospike.cli.options import PRESETS, check_device
from chronospike.config import preset_names
from chronospike.errors import InputError


def test_help_lists_the_presets_there_are() -> None:
    assert ", ".join(preset_names()) == PRESETS


@pytest.mark.parametrize("name", ["auto", "cpu", "cuda", "cuda:0", "cuda:12"])
def test_a_device_is_taken(name: str) -> None:
    assert check_device(name) == name


@pytest.mark.parametrize("name", ["gpu", "", "cuda:", "cuda:x", "CPU", "mps"])
def test_what_cannot_be_a_device_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="Use auto, cpu, cuda or cuda:N"):
        check_device(name)
