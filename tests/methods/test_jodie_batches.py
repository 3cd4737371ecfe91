from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from chronospike.data.events import EventLog
from chronospike.errors import InputError
from chronospike.methods.jodie_batches import (
    BatchSpan,
    StepSpan,
    assign_batches,
    batch_schedule,
    count_batches,
    since_first,
    span_numbers,
    step_schedule,
)
from tests.small_runs import CPU

NODES = 30
NAMES = ("owner", "partner", "role", "gap", "previous", "previous_fresh")


def log_of(events: Sequence[tuple[int, int, float]], steps: list[int] | None = None, num_steps: int = 0) -> EventLog:
    """A log of (source, target, time); a step for each distinct time unless they are given."""
    source, target, time = (np.array(column) for column in zip(*events, strict=True))
    step = np.unique(time, return_inverse=True)[1] if steps is None else np.array(steps)
    return EventLog.of(source, target, time, step.astype(np.int32), max(num_steps, int(step.max()) + 1))


def random_log(seed: int, events: int = 200, steps: int = 4, nodes: int = NODES) -> EventLog:
    """Random events at several times within each step; nodes repeat within a step and pairs repeat, too."""
    rng = np.random.default_rng(seed)
    source = rng.integers(0, nodes - 2, events)
    target = (source + rng.integers(1, nodes - 2, events)) % (nodes - 2)
    time = np.sort(rng.integers(0, 10 * steps, events)).astype(np.float64)
    return EventLog.of(source, target, time, (time // 10).astype(np.int32), steps)


def batch_spans(log: EventLog, spans: int = 7) -> list[BatchSpan]:
    return cast(list[BatchSpan], batch_schedule(log, NODES, spans, CPU).spans)


def step_spans(log: EventLog, only_last: bool = False) -> list[StepSpan]:
    return cast(list[StepSpan], step_schedule(log, NODES, only_last, CPU).spans)


def test_t_batches_are_those_worked_out_by_hand() -> None:
    # Users 0, 1, 2 and items 3, 4, 5.
    source, target = np.array([0, 1, 0, 1, 2, 2]), np.array([3, 4, 4, 3, 5, 3])
    assert assign_batches(source, target, np.zeros(6, dtype=int), 6).tolist() == [0, 0, 1, 1, 0, 2]


def test_t_batches_begin_again_with_each_span() -> None:
    source, target = np.array([0, 0, 0, 1]), np.array([1, 2, 1, 2])
    assert assign_batches(source, target, np.array([0, 0, 1, 1]), 3).tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("seed", range(3))
def test_no_node_is_twice_in_a_t_batch_and_each_has_its_events_in_order(seed: int) -> None:
    log, seen = random_log(seed), 0
    order: dict[int, list[tuple[int, int]]] = {}
    for span in batch_spans(log):
        owner, partner = span.owner.tolist(), span.partner.tolist()
        for low, high in zip(span.batches, span.batches[1:], strict=False):
            assert len(set(owner[low:high])) == high - low > 0
            half = (high - low) // 2
            assert owner[low : low + half] == partner[low + half : high]
            assert owner[low + half : high] == partner[low : low + half]
            assert span.role[low:high].tolist() == [0] * half + [1] * half
            for u, v in zip(owner[low:high], partner[low:high], strict=True):
                order.setdefault(u, []).append((u, v))
            seen += half
    assert seen == len(log)
    for node, found in order.items():
        ends = zip(log.source.tolist(), log.target.tolist(), strict=True)
        assert found == [(node, v if u == node else u) for u, v in ends if node in (u, v)]


def test_t_batches_of_a_span_are_as_few_as_can_be() -> None:
    log = random_log(4)
    span = span_numbers(log, 7)
    total = 0
    for s in range(int(span.max()) + 1):
        last: dict[int, int] = {}
        for u, v in zip(log.source[span == s].tolist(), log.target[span == s].tolist(), strict=True):
            last[u] = last[v] = 1 + max(last.get(u, -1), last.get(v, -1))
        total += 1 + max(last.values())
    assert count_batches(log, NODES, 7) == total == sum(len(one.batches) - 1 for one in batch_spans(log))


def test_spans_are_of_equal_duration_and_within_a_step() -> None:
    log = log_of([(0, 1, t) for t in (0, 1, 2, 6, 7, 8)], [0, 0, 0, 0, 0, 1])
    assert span_numbers(log, 2).tolist() == [0, 0, 0, 1, 1, 2]
    assert span_numbers(log, 1).tolist() == [0, 0, 0, 0, 0, 1]
    assert [span.step for span in batch_spans(log, 2)] == [0, 0, 1]


def _plain(log: EventLog, span: NDArray[Any]) -> list[dict[str, Any]]:
    """Every update in the order of the events, by dictionaries."""
    time, found = since_first(log.time), []
    met: dict[int, int] = {}
    since: dict[int, float] = {}
    first: dict[int, tuple[int, int]] = {}
    for e, ends in enumerate(zip(log.source.tolist(), log.target.tolist(), strict=True)):
        for side in range(2):
            first.setdefault(ends[side], (int(span[e]), side))
        for side in range(2):
            node, other = ends[side], ends[1 - side]
            before = met.get(node, NODES)
            fresh = 1 - side if before == NODES else first[before][1] if first[before][0] == span[e] else -1
            gap = time[e] - since.get(node, 0.0)
            found.append(dict(zip(NAMES, (node, other, side, gap, before, fresh), strict=True)))
        for side in range(2):
            met[ends[side]], since[ends[side]] = ends[1 - side], time[e]
    return found


def test_updates_know_times_and_partners_as_a_plain_walk_finds_them() -> None:
    log = random_log(5)
    wanted = _plain(log, span_numbers(log, 7))
    by_span = batch_spans(log)
    found = [
        dict(zip(NAMES, row, strict=True))
        for span in by_span
        for row in zip(*(getattr(span, name).tolist() for name in NAMES), strict=True)
    ]
    for node in range(NODES):
        assert [one for one in found if one["owner"] == node] == [one for one in wanted if one["owner"] == node]
    schedule = batch_schedule(log, NODES, 7, CPU)
    gaps = [one["gap"] for one in wanted]
    assert schedule.gap_mean == pytest.approx(np.mean(gaps))
    assert schedule.gap_std == pytest.approx(np.std(gaps))


def test_every_update_reads_the_newest_state_of_both_nodes() -> None:
    for span in batch_spans(random_log(6)):
        # The node of each numbered state: after every update, then at the beginning.
        whose = torch.cat([span.owner, span.nodes])
        assert torch.equal(whose[span.reads[0]], span.owner)
        assert torch.equal(whose[span.reads[1]], span.partner)
        assert torch.equal(whose[span.last], span.nodes)
        # No state but a node's last is passed over, and none is read twice as a node's own.
        states = sorted(span.reads[0].tolist() + span.last.tolist())
        assert states == list(range(len(whose)))
        starts = np.array(span.batches)
        batch = np.searchsorted(starts, np.arange(len(span.owner)), side="right")
        for side in range(2):
            read = span.reads[side].numpy()
            within = read < len(span.owner)
            assert (batch[read[within]] < batch[within]).all()


@pytest.mark.parametrize("kind", ["tbatch", "snapshot"])
def test_time_ahead_is_the_time_to_the_next_activity_or_to_the_end(kind: str) -> None:
    log = log_of([(0, 1, 0), (0, 2, 1), (0, 1, 4), (3, 4, 6)], [0, 1, 4, 6])
    make = batch_schedule(log, 6, 500, CPU) if kind == "tbatch" else step_schedule(log, 6, False, CPU)
    found = {(span.step, int(v)): float(a) for span in make.spans for v, a in zip(span.nodes, span.ahead, strict=True)}
    assert found == {(0, 0): 1, (0, 1): 4, (1, 0): 3, (1, 2): 5, (4, 0): 2, (4, 1): 2, (6, 3): 0, (6, 4): 0}
    assert make.final_gap.tolist() == [2, 2, 5, 0, 0, 6]
    assert make.final_fresh.tolist() == [-1, -1, -1, -1, -1, 0]


def test_a_step_knows_the_partners_of_every_node_and_which_are_new() -> None:
    log = log_of([(0, 1, 0), (0, 1, 1), (2, 0, 1), (0, 2, 1), (3, 1, 1)], [0, 1, 1, 1, 1])
    first, second = step_spans(log)
    assert first.nodes.tolist() == [0, 1]
    assert first.fresh.tolist() == [0, 1]
    assert first.partners_fresh.tolist() == [[0, 1], [1, 0]]
    assert first.previous.tolist() == [NODES, NODES]
    assert second.nodes.tolist() == [0, 1, 2, 3]
    assert second.fresh.tolist() == [-1, -1, 0, 0]
    assert second.offsets.tolist() == [0, 3, 5, 7, 8]
    assert second.partners.tolist() == [1, 2, 2, 0, 3, 0, 0, 1]
    assert second.partners_fresh.numpy() == pytest.approx(np.array([[2 / 3, 0], [0.5, 0], [0, 0], [0, 0]]))
    assert second.previous.tolist() == [1, 0, NODES, NODES]
    assert second.gap.tolist() == [1, 1, 1, 1]
    # The role in the last event of the step.
    assert second.role.tolist() == [0, 1, 1, 0]


def test_the_last_partner_can_stand_for_all() -> None:
    log = log_of([(0, 1, 0), (0, 1, 1), (2, 0, 1), (0, 2, 1), (3, 1, 1)], [0, 1, 1, 1, 1])
    second = step_spans(log, only_last=True)[1]
    assert second.partners.tolist() == [2, 3, 0, 1]
    assert second.offsets.tolist() == [0, 1, 2, 3, 4]
    assert second.partners_fresh.tolist() == [[1, 0], [1, 0], [0, 0], [0, 0]]


def test_steps_without_events_make_no_spans_but_count_as_time() -> None:
    log = log_of([(0, 1, 0.0), (0, 1, 3.0)], [0, 3], num_steps=6)
    schedule = step_schedule(log, 3, False, CPU)
    assert [span.step for span in schedule.spans] == [0, 3]
    assert schedule.spans[1].gap.tolist() == [3, 3]
    assert schedule.final_gap.tolist() == [2, 2, 5]


@pytest.mark.parametrize("kind", ["tbatch", "snapshot"])
def test_a_log_without_events_has_no_spans(kind: str) -> None:
    empty = EventLog.of(np.zeros(0, int), np.zeros(0, int), np.zeros(0), np.zeros(0, np.int32), 1)
    made = batch_schedule(empty, 4, 5, CPU) if kind == "tbatch" else step_schedule(empty, 4, False, CPU)
    assert made.spans == []
    assert made.final_fresh.tolist() == [0, 0, 0, 0]
    assert (made.gap_mean, made.gap_std) == (0, 1)
    assert count_batches(empty, 4, 5) == 0


@pytest.mark.parametrize("dtype", ["int64", "float64", "datetime64[us]"])
def test_times_of_every_kind_are_counted_from_the_first(dtype: str) -> None:
    time = np.array([-3, -3, 5, 2**40], dtype="int64").astype(dtype)
    assert since_first(time).tolist() == [0, 0, 8, 2**40 + 3]


def test_integer_times_may_be_as_far_apart_as_there_are() -> None:
    ends = np.array([-(2**63), 2**63 - 1])
    assert since_first(ends).tolist() == [0, 2.0**64]


def test_times_farther_apart_than_a_float_holds_are_refused() -> None:
    with pytest.raises(InputError, match="too far apart"):
        since_first(np.array([-1e308, 1.5e308]))


def test_a_single_time_is_a_single_span_with_gaps_of_zero() -> None:
    log = log_of([(0, 1, 5.0), (1, 2, 5.0)])
    assert span_numbers(log, 500).tolist() == [0, 0]
    schedule = batch_schedule(log, 3, 500, CPU)
    assert (schedule.gap_mean, schedule.gap_std) == (0, 1)
