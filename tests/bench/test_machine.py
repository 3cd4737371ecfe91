from __future__ import annotations

import pytest
import torch

from chronospike.bench import machine


def test_rates_come_from_what_was_copied_and_multiplied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_COPY_BYTES", {"cpu": 1 << 12})
    monkeypatch.setattr(machine, "_PRODUCT_SIZE", {"cpu": 16})
    taken = iter([0.5, 0.25])
    monkeypatch.setattr(machine, "timings", lambda work, device, repeats: (work(), [next(taken), 9.0])[1])
    found = machine.measure_machine(torch.device("cpu"))
    assert found.bandwidth == 2 * (1 << 12) / 0.5
    assert found.rate == 2 * 16**3 / 0.25


def test_the_first_run_does_not_count() -> None:
    calls: list[int] = []
    assert len(machine.timings(lambda: calls.append(1), torch.device("cpu"), 3)) == 3
    assert len(calls) == 4
