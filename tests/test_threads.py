from __future__ import annotations

import pytest

from chronospike.threads import default_threads, run_chunks


@pytest.mark.parametrize("threads", [1, 2, 3, 7, None])
@pytest.mark.parametrize("total", [0, 1, 2, 10, 101])
def test_chunks_cover_the_range_once(total: int, threads: int | None) -> None:
    seen = [0] * total

    def work(start: int, stop: int) -> None:
        for i in range(start, stop):
            seen[i] += 1

    run_chunks(work, total, threads)
    assert seen == [1] * total


@pytest.mark.parametrize("failing", [0, 9])
def test_an_exception_in_any_chunk_is_raised(failing: int) -> None:
    def work(start: int, stop: int) -> None:
        if start <= failing < stop:
            raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        run_chunks(work, 10, 3)


def test_there_is_at_least_one_thread() -> None:
    assert default_threads() >= 1
