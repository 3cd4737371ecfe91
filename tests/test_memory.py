from __future__ import annotations

import math
from pathlib import Path

import pytest

from chronospike import memory
from chronospike.errors import InputError
from chronospike.memory import available_bytes, group_limit, require_bytes


def _machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: str, limit: str) -> None:
    (tmp_path / "meminfo").write_text(free)
    (tmp_path / "memory.max").write_text(limit)
    monkeypatch.setattr(memory, "_MEMINFO", str(tmp_path / "meminfo"))
    monkeypatch.setattr(memory, "_GROUP_LIMITS", (str(tmp_path / "memory.max"), str(tmp_path / "none")))


FREE = "MemTotal: 9000 kB\nMemFree: 10 kB\nMemAvailable: 4000 kB\nSwapFree: 1000 kB\n"


@pytest.mark.parametrize(("limit", "there"), [("max\n", 5_120_000), ("9000000\n", 5_120_000), ("300000\n", 300_000)])
def test_what_is_there_is_free_memory_and_swap_up_to_the_limit_of_the_group(
    limit: str, there: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _machine(tmp_path, monkeypatch, FREE, limit)
    assert available_bytes() == there


def test_a_system_that_does_not_tell_has_all_of_its_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _machine(tmp_path, monkeypatch, "nothing", "max")
    assert available_bytes() > 10**6
    assert group_limit() == math.inf


def test_more_than_there_is_is_refused_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _machine(tmp_path, monkeypatch, FREE.replace("4000", "4000000"), "max")
    require_bytes(4e9, "this", "Lower it")
    with pytest.raises(InputError, match=r"^this needs about 12.5 GB, and this machine has 4.1 GB free. Lower it$"):
        require_bytes(12.5e9, "this", "Lower it")
