from __future__ import annotations

import pytest
import torch

from chronospike.bench import roofline
from chronospike.bench.roofline import STAGES, Machine, Work, step_work
from chronospike.nn.model import Architecture


def test_work_of_a_small_step_by_hand() -> None:
    """One root, one step, two neighbours, 8 inputs, 4 channels, 2 heads."""
    a = Architecture(8, 3, hidden=(4,), heads=2, temporal_heads=2, feedforward=5, max_steps=7)
    work = step_work(a, (2,), steps=1, batch=1, itemsize=2)
    assert tuple(work) == STAGES
    # Three offsets and two row starts for the root; per slot a neighbour read and a node written.
    assert work["sample"] == Work(3 * 4 + 2 * 8 + 2 * (4 + 4))
    # Three rows of 8 halves in, four singles out; two products of 8 x 4, and per head and neighbour a logit and a sum.
    assert work["attend"] == Work(3 * 8 * 2 + 4 * 4, 2 * (2 * 8 * 4) + 2 * (2 * 8) * 2 * 2)
    assert work["neurons"] == Work(3 * 4 * 4)


def test_stages_are_bound_by_what_takes_longer() -> None:
    machine = Machine(bandwidth=100.0, rate=1000.0)
    assert Work(200, 1000).seconds(machine) == 2.0
    assert Work(200, 9000).seconds(machine) == 9.0
    assert Work(1, 2) + Work(3, 4) == Work(4, 6)


@pytest.mark.parametrize("stage", ["sample", "attend", "neurons", "temporal", "backward"])
def test_work_grows_linearly_with_steps(stage: str) -> None:
    a = Architecture(16, 4, hidden=(8, 8), heads=2, temporal_heads=2)
    few, many = (step_work(a, (3, 2), steps, 1, 4)[stage].bytes for steps in (5, 10))
    assert many == pytest.approx(2 * few, rel=0.1)


def test_halved_features_halve_what_is_gathered() -> None:
    a = Architecture(16, 4, hidden=(8, 8), heads=2, temporal_heads=2)
    single, half = (step_work(a, (3, 2), 1, 1, itemsize)["attend"].bytes for itemsize in (4, 2))
    assert single - half == 2 * 16 * (1 + 3 + 6)


def test_rates_come_from_what_was_copied_and_multiplied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofline, "_COPY_BYTES", {"cpu": 1 << 12})
    monkeypatch.setattr(roofline, "_PRODUCT_SIZE", {"cpu": 16})
    taken = iter([0.5, 0.25])
    monkeypatch.setattr(roofline, "timings", lambda work, device, repeats: (work(), [next(taken), 9.0])[1])
    found = roofline.measure_machine(torch.device("cpu"))
    assert found.bandwidth == 2 * (1 << 12) / 0.5
    assert found.rate == 2 * 16**3 / 0.25


def test_the_first_run_does_not_count() -> None:
    calls: list[int] = []
    assert len(roofline.timings(lambda: calls.append(1), torch.device("cpu"), 3)) == 3
    assert len(calls) == 4
