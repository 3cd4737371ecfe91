"""Choosing the column for each role: by name, or as the user set it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from chronospike.data.reading.tables import Sheet
from chronospike.errors import InputError, nearest

Given = str | int | None


@dataclass(frozen=True)
class Role:
    """A part that a column can play.

    Attributes:
        name: as it is called in messages and, behind two dashes, on the command line.
        known: names it goes by, letters and digits only; where several occur the earliest in this list wins.
        position: its column in a table without names, counted from 0; None if there is no such custom.
        last: whether nothing may follow it there. In lists of edges a weight may stand before the time or after it.
    """

    name: str
    known: tuple[str, ...]
    position: int | None = None
    last: bool = False

    def place(self, count: int) -> int | None:
        """Its column in a table of `count` columns without names."""
        if self.position is None or self.position >= count or (self.last and self.position < count - 1):
            return None
        return self.position


# The two lists run in parallel, so that `u, v` or `user, item` are taken as a pair.
SOURCE = Role(
    "source",
    ("source", "src", "u", "from", "sender", "sourceid", "srcid", "fromid", "fromnodeid", "sourcenode", "srcnode",
     "fromnode", "node1", "nodea", "senderid", "fromaccount", "payer", "user", "userid", "i", "citing", "follower"),
    0,
)  # fmt: skip
TARGET = Role(
    "target",
    ("target", "dst", "v", "to", "receiver", "targetid", "dstid", "toid", "tonodeid", "targetnode", "dstnode",
     "tonode", "node2", "nodeb", "receiverid", "toaccount", "payee", "item", "itemid", "j", "i", "cited", "followee",
     "dest", "destination", "recipient"),
    1,
)  # fmt: skip
MOMENTS = ("time", "timestamp", "t", "ts", "datetime", "date")
TIME = Role("time", (*MOMENTS, "timestep", "step", "when", "year", "day", "unixtime", "createdat"), 2, last=True)
NODE = Role(
    "node",
    ("node", "nodeid", "id", "vertex", "vertexid", "user", "userid", "account", "accountid", "customer", "customerid",
     "product", "productid", "paper", "paperid", "patent", "patentid", "author", "authorid", "name"),
    0,
)  # fmt: skip
LABEL = Role(
    "label", ("label", "class", "y", "category", "nodelabel", "nodeclass", "classlabel", "group", "type"), 1, last=True
)
# Only the plain words: a "year" among node attributes is more likely an attribute.
FEATURE_TIME = Role("time", MOMENTS)


def letters(name: str) -> str:
    """`From_Node Id` and `fromnodeid` are one name."""
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def find_column(sheet: Sheet, role: Role, given: Given = None, taken: Iterable[int] = ()) -> int:
    """The position of the column that plays `role`.

    Args:
        given: the user's choice: a name, or a position counted from 1. A column named "2" comes before the second.
        taken: columns that already have a part.
    """
    taken = list(taken)
    found = _chosen(sheet, role, given) if given is not None else find_optional(sheet, role, taken=taken)
    if found is None:
        raise InputError(_not_found(sheet, role))
    if found in taken:
        raise InputError(f"{sheet.origin}: column '{sheet.names[found]}' cannot be used twice, as '{role.name}' too")
    return found


def find_optional(sheet: Sheet, role: Role, taken: Iterable[int] = ()) -> int | None:
    """As `find_column`, but None where no name fits."""
    if sheet.named:
        names, free = [letters(name) for name in sheet.names], set(range(len(sheet.names))) - set(taken)
        return next((k for known in role.known for k, name in enumerate(names) if name == known and k in free), None)
    return role.place(len(sheet.names))


def _chosen(sheet: Sheet, role: Role, given: str | int) -> int:
    for fits in (lambda name: name == str(given), lambda name: letters(name) == letters(str(given))):
        matches = [k for k, name in enumerate(sheet.names) if fits(name)]
        if len(matches) > 1:
            raise InputError(f"{sheet.origin}: {len(matches)} columns are called '{given}'. Give a position from 1 on")
        if matches:
            return matches[0]
    if str(given).isdecimal():
        if 1 <= int(given) <= len(sheet.names):
            return int(given) - 1
        raise InputError(f"{sheet.origin}: no column {given} for '{role.name}'; there are {len(sheet.names)}")
    there = f" The columns are: {_listed(sheet)}." if sheet.named else " The columns have no names; give a position."
    raise InputError(f"{sheet.origin}: no column '{given}'.{there}{nearest(str(given), sheet.names)}")


def _not_found(sheet: Sheet, role: Role) -> str:
    if not sheet.named:
        count = len(sheet.names)
        if role.position is not None and role.position < count:
            return (
                f"{sheet.origin}: {count} columns without names, so the {role.name} may be any of them. "
                f"Give its position, such as --{role.name} {role.position + 1}"
            )
        return f"{sheet.origin}: {count} column{'s' * (count != 1)}, and none is left for '{role.name}'"
    return (
        f"{sheet.origin}: no '{role.name}' column. The columns are: {_listed(sheet)}. Name it with --{role.name}, "
        "or say that the first row is data with --no-header"
    )


def _listed(sheet: Sheet, most: int = 20) -> str:
    shown = ", ".join(f"'{name}'" for name in sheet.names[:most])
    return shown + (f" and {len(sheet.names) - most} more" if len(sheet.names) > most else "")
