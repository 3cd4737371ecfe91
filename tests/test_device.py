from __future__ import annotations

import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from chronospike.device import choose_device, keep_freed_memory, own_torch
from chronospike.errors import InputError


def test_auto_takes_the_gpu_only_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for there, kind in ((False, "cpu"), (True, "cuda")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert choose_device("auto").type == kind


def test_no_gpu_where_one_was_asked_for_says_how_to_run_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(
        InputError, match="device 'cuda': there is no GPU that torch can use here. Run with --device cpu"
    ):
        choose_device("cuda")


def test_a_gpu_past_the_last_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("cuda:1").index == 1
    with pytest.raises(InputError, match="there are 2 GPUs, counted from 0"):
        choose_device("cuda:2")


@pytest.mark.parametrize("name", ["gpu", "", "cuda:x", "meta"])
def test_an_unknown_device_gets_the_choices(name: str) -> None:
    with pytest.raises(InputError, match=f"device '{name}' is not .*. Use auto, cpu, cuda or cuda:N"):
        choose_device(name)


def test_the_c_library_takes_the_memory_thresholds() -> None:
    assert keep_freed_memory() is (platform.libc_ver()[0] == "glibc")


def test_own_torch_is_that_of_a_new_program_and_the_callers_comes_back() -> None:
    def state() -> tuple[object, ...]:
        return (
            torch.get_default_dtype(),
            torch.empty(0).device.type,
            torch.is_grad_enabled(),
            torch.is_autocast_enabled("cpu"),
        )

    usual = state()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"), torch.inference_mode(), torch.autocast("cpu"):
            before = state()
            with own_torch():
                assert state() == usual
            assert state() == before
    finally:
        torch.set_default_dtype(torch.float32)


def test_threads_take_turns_with_torch() -> None:
    def use() -> None:
        with own_torch():
            pass

    with ThreadPoolExecutor(1) as other:
        with own_torch(), own_torch():
            waiting = other.submit(use)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.1)
        waiting.result(timeout=60)


def test_no_name_is_not_a_device() -> None:
    with pytest.raises(InputError, match="device 'None' is not known"):
        choose_device(None)  # type: ignore[arg-type]


def test_a_process_forked_after_a_computation_can_compute() -> None:
    # Torch in it would wait for OpenMP's threads forever, so all of it is a program of its own.
    program = """
import multiprocessing, torch
from chronospike.device import own_torch
torch.set_num_threads(2)
@own_torch()
def compute():
    return (torch.ones(512, 512) @ torch.ones(512, 512)).exp().isinf().all().item()
compute()
child = multiprocessing.get_context("fork").Process(target=lambda: exit(0 if compute() else 1))
child.start()
child.join(30)
done = child.exitcode
child.kill()
exit(0 if done == 0 else 1)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
