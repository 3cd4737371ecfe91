from __future__ import annotations

import pyarrow as pa
import pytest

from chronospike.data.reading.columns import LABEL, NODE, SOURCE, TARGET, TIME, Role, find_column, find_optional
from chronospike.data.reading.tables import Sheet
from chronospike.errors import InputError


def sheet(*names: str, named: bool = True) -> Sheet:
    return Sheet(pa.table([pa.array(["x"])] * len(names), names=list(names)), "edges.csv", named)


@pytest.mark.parametrize(
    ("names", "places"),
    [
        (("source", "target", "time"), (0, 1, 2)),
        (("Timestamp", "SRC", "Dst"), (1, 2, 0)),
        (("", "u", "i", "ts", "label", "idx"), (1, 2, 3)),
        (("i", "j", "t"), (0, 1, 2)),
        (("user_id", "item_id", "timestamp"), (0, 1, 2)),
        (("FromNodeId", "To Node-Id", "date"), (0, 1, 2)),
        (("date", "time", "from", "to"), (2, 3, 1)),
        (("amount", "From Account", "To Account", "timestamp"), (1, 2, 3)),
        (("payer", "payee", "date"), (0, 1, 2)),
    ],
)
def test_parts_are_found_by_their_usual_names(names: tuple[str, ...], places: tuple[int, ...]) -> None:
    table = sheet(*names)
    source = find_column(table, SOURCE)
    target = find_column(table, TARGET, taken=[source])
    assert (source, target, find_column(table, TIME)) == places


@pytest.mark.parametrize("name", ["account", "Customer ID", "paper_id"])
def test_the_node_column_may_say_what_the_nodes_are(name: str) -> None:
    assert find_column(sheet("label", name), NODE) == 1


def test_given_names_come_before_usual_ones() -> None:
    assert find_column(sheet("source", "buyer"), SOURCE, "buyer") == 1


def test_given_names_match_without_regard_to_case() -> None:
    assert find_column(sheet("Buyer Id", "seller"), SOURCE, "buyer_id") == 0


def test_positions_count_from_one() -> None:
    assert find_column(sheet("1", "2", "3", named=False), SOURCE, 2) == 1
    assert find_column(sheet("a", "b", "c"), SOURCE, "3") == 2


def test_a_column_named_by_a_number_comes_before_the_position() -> None:
    assert find_column(sheet("2", "1"), SOURCE, "1") == 1


def test_without_names_the_usual_order_holds() -> None:
    table = sheet("1", "2", "3", named=False)
    assert [find_column(table, role) for role in (SOURCE, TARGET, TIME, NODE)] == [0, 1, 2, 0]
    assert find_column(sheet("1", "2", named=False), LABEL) == 1


@pytest.mark.parametrize(("role", "count", "way_out"), [(TIME, 4, "--time 3"), (LABEL, 3, "--label 2")])
def test_without_names_nothing_is_guessed_among_more_columns(role: Role, count: int, way_out: str) -> None:
    table = sheet(*map(str, range(1, count + 1)), named=False)
    with pytest.raises(InputError, match=f"{count} columns without names, .*{role.name} may be any.*{way_out}"):
        find_column(table, role)
    assert find_optional(table, role) is None
    assert find_column(table, role, count) == count - 1


@pytest.mark.parametrize(
    ("table", "given", "message"),
    [
        (sheet("a", "b"), None, r"no 'time' column. The columns are: 'a', 'b'"),
        (sheet("when_made", "b"), "when_mad", r"no column 'when_mad'.*'when_made', 'b'.*Did you mean 'when_made'"),
        (sheet("1", "2", named=False), None, r"2 columns, and none is left for 'time'"),
        (sheet("1", "2", named=False), 7, r"no column 7 for 'time'; there are 2"),
        (sheet("1", "2", named=False), "clock", r".* no names; give a position"),
        (sheet("x", "x"), "x", r"2 columns are called 'x'"),
    ],
)
def test_what_is_not_found_is_named_with_what_there_is(table: Sheet, given: str | int | None, message: str) -> None:
    with pytest.raises(InputError, match=f"edges.csv: {message}"):
        find_column(table, TIME, given)


def test_one_column_cannot_play_two_parts() -> None:
    with pytest.raises(InputError, match="cannot be used twice, as 'target' too"):
        find_column(sheet("a", "b"), TARGET, "a", taken=[0])


def test_an_optional_part_may_be_absent() -> None:
    assert find_optional(sheet("a", "b"), TIME) is None
