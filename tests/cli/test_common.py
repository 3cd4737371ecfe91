from __future__ import annotations

import io
import re
import sys

import pytest

from chronospike.cli.common import human_bytes, human_count, human_seconds, print_table, progress, report_error


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _written(monkeypatch: pytest.MonkeyPatch, terminal: io.StringIO) -> str:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress("batches") as show:
        show("epoch 1", 1, 10)
        show("epoch 1", 5, 10)
        show("scoring", 100, 400, "nodes")
        show("scoring", 300, 400, "nodes")
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())


def test_the_bar_names_the_unit_of_each_part(monkeypatch: pytest.MonkeyPatch) -> None:
    last = _written(monkeypatch, Terminal()).rsplit("scoring", 1)[1]
    assert "nodes/s" in last
    assert "75%" in last


def test_where_nobody_counts_the_bar_shows_no_share(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress("batches") as show:
        show("scoring", 400, 400, "nodes")
        show("comparing", 0, None, "fits")
    assert "%" not in terminal.getvalue().rsplit("comparing", 1)[1]


def test_off_a_terminal_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _written(monkeypatch, io.StringIO()).strip() == ""


def test_an_error_is_one_line_whatever_it_holds(capsys: pytest.CaptureFixture[str]) -> None:
    report_error("first\n  second")
    assert capsys.readouterr().err == "chronospike: first second\n"


def test_columns_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([("a", "1"), ("long", "2")])
    assert capsys.readouterr().out == "  a     1\n  long  2\n"


def test_on_a_terminal_long_values_are_wrapped_below_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "30")
    print_table([("a", "1"), ("long", "one  two three-four five")])
    assert terminal.getvalue() == "  a     1\n  long  one  two three-four\n        five\n"


@pytest.mark.parametrize(("count", "text"), [(12, "12"), (1234, "1.2 k"), (2_500_000, "2.5 M"), (3e9, "3.0 G")])
def test_counts_for_people(count: float, text: str) -> None:
    assert human_count(count) == text


@pytest.mark.parametrize(("count", "text"), [(12, "12 B"), (1500, "1.5 kB"), (530e6, "530.0 MB"), (2e12, "2.0 TB")])
def test_bytes_for_people(count: float, text: str) -> None:
    assert human_bytes(count) == text


@pytest.mark.parametrize(("count", "text"), [(3.21, "3.2 s"), (45.4, "45 s"), (719, "12 min"), (12_600, "3.5 h")])
def test_times_are_said_with_two_digits_or_three(count: float, text: str) -> None:
    assert human_seconds(count) == text
