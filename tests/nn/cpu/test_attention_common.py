from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from chronospike.nn.cpu.attention_common import for_each


@pytest.mark.parametrize("count", [0, 1, 2, 50])
def test_every_number_once(count: int) -> None:
    seen: list[int] = []
    for_each(lambda: seen.append, count)
    assert sorted(seen) == list(range(count))


def test_torch_has_one_thread_inside_and_its_own_number_again_outside() -> None:
    inside: list[int] = []

    def new_worker() -> Callable[[int], None]:
        return lambda _: inside.append(torch.get_num_threads())

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for_each(new_worker, 8)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert inside == [1] * 8


def test_an_exception_in_a_worker_is_raised_and_the_threads_are_restored() -> None:
    def new_worker() -> Callable[[int], None]:
        def work(number: int) -> None:
            if number == 3:
                raise RuntimeError("step 3")

        return work

    before = torch.get_num_threads()
    with pytest.raises(RuntimeError, match="step 3"):
        for_each(new_worker, 6)
    assert torch.get_num_threads() == before
