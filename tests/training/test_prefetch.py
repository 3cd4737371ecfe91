from __future__ import annotations

import threading

import pytest

from chronospike.training.prefetch import prepare_ahead


def test_items_come_in_order_with_what_was_prepared() -> None:
    assert list(prepare_ahead(range(5), lambda i: i * i)) == [(0, 0), (1, 1), (2, 4), (3, 9), (4, 16)]


def test_nothing_comes_of_nothing() -> None:
    assert list(prepare_ahead([], str)) == []


def test_the_next_is_prepared_while_this_one_is_used() -> None:
    begun = [threading.Event() for _ in range(3)]

    def prepare(number: int) -> int:
        begun[number].set()
        return number

    for number, _ in prepare_ahead(range(3), prepare):
        if number < 2:
            assert begun[number + 1].wait(timeout=10)


def test_it_is_prepared_in_another_thread() -> None:
    threads = {ready for _, ready in prepare_ahead(range(3), lambda _: threading.get_ident())}
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_never_more_than_one_ahead() -> None:
    prepared: list[int] = []
    for number, _ in prepare_ahead(range(6), lambda i: prepared.append(i)):
        assert len(prepared) <= number + 2


def test_an_exception_comes_where_its_item_would_have() -> None:
    def prepare(number: int) -> int:
        if number == 2:
            raise RuntimeError("no such batch")
        return number

    seen = []
    with pytest.raises(RuntimeError, match="no such batch"):
        for number, _ in prepare_ahead(range(5), prepare):
            seen.append(number)
    assert seen == [0, 1]


def test_stopping_early_ends_the_thread_and_prepares_no_more() -> None:
    prepared: list[int] = []
    batches = prepare_ahead(range(100), lambda i: prepared.append(i))
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert prepared in ([0], [0, 1])
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("chronospike-ahead")]
