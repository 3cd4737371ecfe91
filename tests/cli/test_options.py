from __future__ import annotations

import pytest

from chronospike.cli.options import PRESETS, check_device, seconds_of
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


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("15m", 900), ("2h", 7200), ("1.5 h", 5400), (None, None)])
def test_a_time_is_read_with_its_unit(text: str | None, seconds: float | None) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["90", "2 days", "h", "-3s", "0s", ""])
def test_a_time_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="90s, 15m or 2h"):
        seconds_of(text)
