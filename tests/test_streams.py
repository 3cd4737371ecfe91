from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from chronospike.streams import copy_from_stream, copy_to_stream, descriptor_of, is_stream, stream_name


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Both ends of a pipe: where it is read and where it is written."""
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


@pytest.mark.parametrize(
    ("path", "number"),
    [
        ("/dev/stdin", 0),
        ("/dev/stdout", 1),
        ("/dev/stderr", 2),
        ("/dev/fd/1", 1),
        ("/proc/self/fd/63", 63),
        ("/proc/{process}/fd/5", 5),
        ("/dev/null", None),
        ("/dev/fd/x", None),
        ("/dev/fd/99999999999999", None),
        ("fd/1", None),
    ],
)
def test_the_names_of_descriptors_are_known(path: str, number: int | None) -> None:
    assert descriptor_of(Path(path.format(process=os.getpid()))) == number


def test_a_link_to_a_descriptor_is_that_descriptor(tmp_path: Path) -> None:
    (tmp_path / "out.csv").symlink_to("/dev/stdout")
    (tmp_path / "again.csv").symlink_to("out.csv")
    assert descriptor_of(tmp_path / "again.csv") == 1


def test_links_in_a_circle_are_no_descriptor(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert descriptor_of(tmp_path / "a") is None


def test_files_and_folders_are_no_streams(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("1")
    os.mkfifo(tmp_path / "pipe")
    paths = (tmp_path, tmp_path / "x", tmp_path / "none", tmp_path / "pipe", Path("/dev/null"))
    assert [is_stream(path) for path in paths] == [False, False, False, True, True]


def test_what_is_in_a_redirected_file_stays(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("before\n")
    (tmp_path / "content").write_text("after\n")
    descriptor = os.open(tmp_path / "log", os.O_WRONLY | os.O_APPEND)
    try:
        copy_to_stream(tmp_path / "content", Path(f"/dev/fd/{descriptor}"))
    finally:
        os.close(descriptor)
    assert (tmp_path / "log").read_text() == "before\nafter\n"


def test_a_pipe_that_does_not_wait_gets_everything(tmp_path: Path, pipe: tuple[int, int]) -> None:
    content = os.urandom(1 << 20)
    (tmp_path / "content").write_bytes(content)
    os.set_blocking(pipe[1], False)
    writer = threading.Thread(target=copy_to_stream, args=(tmp_path / "content", Path(f"/dev/fd/{pipe[1]}")))
    writer.start()
    received = b""
    while len(received) < len(content):
        received += os.read(pipe[0], 1 << 16)
    writer.join()
    assert received == content


def test_a_pipe_is_copied_whole_under_its_name(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], b"a,b,1\n")
    path = Path(f"/dev/fd/{pipe[0]}")
    closed = os.open(os.devnull, os.O_WRONLY)
    os.dup2(closed, pipe[1])  # the last writer goes, so that the pipe ends
    os.close(closed)
    copy = copy_from_stream(path)
    assert copy.read_bytes() == b"a,b,1\n"
    assert copy.name == stream_name(path) == f"descriptor {pipe[0]}"


def test_the_copy_goes_with_the_process(tmp_path: Path) -> None:
    program = "from chronospike.streams import *; print(copy_from_stream(STDIN))"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], input=b"x", capture_output=True, check=True, env=environment)
    assert b"standard input" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_closed_standard_output_is_never_taken_for_a_file_that_got_its_number(tmp_path: Path) -> None:
    (tmp_path / "content").write_text("x")
    program = "import sys; from chronospike.streams import *; copy_to_stream(Path(sys.argv[1]), STDOUT)"
    command = f'exec "$0" -c "{program}" "$1" >&- 2>"$2"'
    paths = [str(tmp_path / name) for name in ("content", "errors")]
    assert subprocess.run(["bash", "-c", command, sys.executable, *paths], check=False).returncode == 1
    assert "Bad file descriptor" in (tmp_path / "errors").read_text()
