"""Users' own node attributes: the types of the columns of a table, and their encoding as inputs of a network.

A graph holds attributes as they were given, a column each: a number, or the code of a category, NaN where nothing is
known. What a network reads is made of them by an `AttributeEncoder`, fitted once and kept with the trained model:

* a number becomes its normal score: the quantile it has among the values of the fit, on the scale of a standard normal
  distribution. Piecewise linear between 27 values, so that heavy tails, units and skew do not matter;
* a category becomes one column per value, rare ones sharing the column "other", where new ones go too;
* where values were missing, a column says so, and the number itself counts as average;
* each of these columns is centred, and all are scaled alike to a variance of one over the whole block.

The encoder knows its columns by name: another table may have them in another order, and more of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from chronospike.errors import InputError, StorageError, nearest
from chronospike.threads import run_chunks

# Normal scores at which the values of a column are remembered.
_SCORES = np.linspace(-3.0, 3.0, 25)
# More values than this are thinned out for the quantiles.
_MOST_VALUES = 4_000_000
# A category gets a column of its own if this many nodes have it, and no more than so many categories do.
_LEAST_NODES, _MOST_CATEGORIES = 3, 100
_CHUNK_VALUES = 1 << 20


@dataclass(frozen=True)
class Column:
    """One attribute.

    Attributes:
        kind: `number` as given, or `category` as a code.
        values: what the codes 0, 1, … of a category stand for.
    """

    name: str
    kind: Literal["number", "category"] = "number"
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class ColumnEncoding:
    """How one column is encoded.

    Attributes:
        knots, scores: of a number: values in ascending order and their normal scores.
        values: of a category: those that have a column each.
        has_other: whether there were rarer ones, which share a column.
        has_missing: whether values were missing, which has a column.
    """

    name: str
    kind: Literal["number", "category"]
    knots: tuple[float, ...] = ()
    scores: tuple[float, ...] = ()
    values: tuple[str, ...] = ()
    has_other: bool = False
    has_missing: bool = False

    @property
    def names(self) -> list[str]:
        """What each encoded column says."""
        own = [self.name] if self.kind == "number" else [f"{self.name}={value}" for value in self.values]
        return [*own, *[f"{self.name}=other"] * self.has_other, *[f"{self.name} missing"] * self.has_missing]


@dataclass(frozen=True)
class Binding:
    """An encoder made ready for one table: where each of its columns stands there.

    Attributes:
        start: `[width]` what a row holds that nothing is known of; known values, times `scale`, are added.
        notes: what a user should be told, a sentence each.
    """

    start: NDArray[np.float32]
    scale: float
    plan: tuple[NDArray[Any], ...]
    notes: list[str] = field(default_factory=list)

    def encode(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        """`[K, width]` inputs for the attributes `rows [K, c]`."""
        # Numba takes a while to load, and most of what imports this module never gets here.
        from chronospike.data.attribute_kernel import encode_rows

        out = np.empty((len(rows), len(self.start)), dtype=np.float32)
        size = max(1, _CHUNK_VALUES // max(1, rows.shape[1]))

        def work(start: int, stop: int) -> None:
            for low in range(start, stop, size):
                high = min(low + size, stop)
                part = np.ascontiguousarray(rows[low:high], dtype=np.float32)
                encode_rows(part, out[low:high], self.start, self.scale, *self.plan)

        run_chunks(work, len(rows))
        return out


@dataclass(frozen=True)
class AttributeEncoder:
    """Turns attributes into inputs, the same way for every table with the columns it was fitted on.

    Attributes:
        means: of each encoded column, taken off.
        scale: by which all of them are multiplied then.
    """

    columns: tuple[ColumnEncoding, ...]
    means: tuple[float, ...]
    scale: float

    @property
    def names(self) -> list[str]:
        return [name for column in self.columns for name in column.names]

    @property
    def width(self) -> int:
        return len(self.names)

    @classmethod
    def fit(cls, values: NDArray[Any], columns: Sequence[Column]) -> Self:
        """From the attributes `[N, c]` or `[T, N, c]` of a graph, all steps together."""
        fitted = []
        for index, column in enumerate(columns):
            flat = values[..., index].reshape(-1)
            given = np.asarray(flat[:: max(1, len(flat) // _MOST_VALUES)], dtype=np.float64)
            known = given[~np.isnan(given)]
            has_missing = len(known) < len(given)
            if column.kind == "category":
                fitted.append(_fit_category(column, known.astype(np.int64), has_missing))
            else:
                knots, scores = _fit_number(known)
                fitted.append(ColumnEncoding(column.name, "number", knots, scores, has_missing=has_missing))
        plain = cls(tuple(fitted), (0.0,) * sum(len(encoding.names) for encoding in fitted), 1.0)
        rows = values.reshape(-1, len(columns))
        some = plain.bind(columns).encode(rows[:: max(1, rows.size // _MOST_VALUES)]).astype(np.float64)
        means = some.mean(axis=0)
        spread = float((some - means).std())
        return cls(plain.columns, tuple(means.tolist()), 1 / spread if spread > 0 else 0.0)

    def bind(self, columns: Sequence[Column], values: NDArray[Any] | None = None) -> Binding:
        """Find each column by its name; one that is missing, or of another kind, is refused.

        A column without any value is of every kind: whoever wrote it down could not know.

        Args:
            values: the attributes of the table, in which new categories and gaps are counted for the notes.
        """
        places = {column.name: index for index, column in enumerate(columns)}
        for encoding in self.columns:
            if encoding.name not in places:
                there = ", ".join(f"'{name}'" for name in list(places)[:20])
                raise InputError(
                    f"the model needs the attribute '{encoding.name}', which the graph does not have."
                    f"{nearest(encoding.name, places)} Its attributes: {there}"
                )
        notes = []
        unused = [name for name in places if name not in {encoding.name for encoding in self.columns}]
        if unused:
            notes.append(f"ignoring attributes that the model does not use: {', '.join(unused[:10])}")
        gaps: dict[str, int] = {}
        source, kind, first, last, place, missing = (np.zeros(len(self.columns), dtype=np.int64) for _ in range(6))
        knots: list[float] = []
        scores: list[float] = []
        codes: list[int] = []
        position = 0
        for k, encoding in enumerate(self.columns):
            column = columns[places[encoding.name]]
            given = None if values is None else values[..., places[encoding.name]]
            if column.kind != encoding.kind and (given is None or not np.isnan(given).all()):
                was, now = ("a number", "text") if encoding.kind == "number" else ("text", "numbers only")
                raise InputError(f"attribute '{encoding.name}' was {was} when the model was trained, and is {now} here")
            source[k], kind[k], place[k] = places[encoding.name], encoding.kind == "category", position
            missing[k] = position + len(encoding.names) - 1 if encoding.has_missing else -1
            if encoding.kind == "number":
                first[k], last[k] = len(knots), len(knots) + len(encoding.knots)
                knots += encoding.knots
                scores += encoding.scores
            else:
                own = _places_of_codes(encoding, column, position)
                first[k], last[k] = len(codes), len(codes) + len(own)
                codes += own
            if given is not None:
                notes += _new_values(encoding, column, given)
                if not encoding.has_missing and np.isnan(given).any():
                    gaps[encoding.name] = int(np.isnan(given).sum())
            position += len(encoding.names)
        if gaps:
            counted = ", ".join(f"{name} ({count:,})" for name, count in list(gaps.items())[:10])
            notes.append(f"missing values in attributes that had none in training: {counted}")
        plan = (
            source, kind, first, last, place, missing, np.array(knots, dtype=np.float64),
            np.array(scores, dtype=np.float64), np.array(codes, dtype=np.int64),
        )  # fmt: skip
        start = (-np.array(self.means) * self.scale).astype(np.float32)
        return Binding(start, self.scale, plan, notes)

    def to_json(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Any, origin: str) -> Self:
        """The inverse of `to_json`; `origin` names the file in messages."""
        try:
            means, scale = tuple(map(float, content["means"])), float(content["scale"])
            encoder = cls(tuple(_checked(entry) for entry in content["columns"]), means, scale)
            if len(means) != encoder.width or not np.isfinite([*means, scale]).all():
                raise ValueError("its means are not those of its columns")
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            raise StorageError(f"{origin} does not describe attributes ({error}). Train the model again") from error
        return encoder


def default_columns(width: int) -> tuple[Column, ...]:
    """Names for the columns of an array: x0, x1, …"""
    return tuple(Column(f"x{k}") for k in range(width))


def columns_from_json(content: Any, width: int, origin: str) -> tuple[Column, ...]:
    """Columns as `asdict` makes them, checked: `width` of them, with different names."""
    try:
        columns = tuple(
            Column(str(entry["name"]), entry["kind"], tuple(map(str, entry["values"]))) for entry in content
        )
    except (TypeError, KeyError) as error:
        raise StorageError(f"{origin} does not describe its attributes ({error}). Import the graph again") from error
    names = {column.name for column in columns}
    if len(columns) != width or len(names) != width or any(c.kind not in ("number", "category") for c in columns):
        raise StorageError(f"{origin} does not match its attributes. Import the graph again")
    return columns


def check_codes(values: NDArray[Any], columns: Sequence[Column], finite: bool = True) -> str | None:
    """What is wrong with the attributes `[..., c]`, if anything: codes that stand for nothing, infinite numbers.

    Without `finite` numbers are not looked at: codes are what compiled code takes for granted.
    """
    for index, column in enumerate(columns):
        given = values[..., index]
        if finite and np.isinf(given).any():
            return f"attribute '{column.name}' holds infinite values"
        if column.kind == "category":
            known = given[~np.isnan(given)]
            if len(known) and not (known.min() >= 0 and known.max() < len(column.values) and np.all(known % 1 == 0)):
                return f"attribute '{column.name}' holds codes that its {len(column.values)} categories do not have"
    return None


def _fit_number(known: NDArray[np.float64]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    from scipy.special import ndtr, ndtri

    if not len(known):
        return (0.0,), (0.0,)
    ordered = np.sort(known)
    picked = ordered[np.clip((ndtr(_SCORES) * len(ordered)).astype(np.int64), 0, len(ordered) - 1)]
    knots = np.unique(np.concatenate([ordered[:1], picked, ordered[-1:]]))
    # The middle of a value's ranks: one that half of the nodes share takes the middle of that half.
    below, through = (np.searchsorted(ordered, knots, side=side) for side in ("left", "right"))
    scores = ndtri(np.clip((below + through) / 2 / len(ordered), *ndtr(_SCORES[[0, -1]])))
    return tuple(knots.tolist()), tuple(np.round(scores, 9).tolist())


def kept_values(sizes: NDArray[np.int64]) -> list[int]:
    """The codes of a category that get a column of their own, given how many nodes have each."""
    return [int(code) for code in np.argsort(-sizes, kind="stable")[:_MOST_CATEGORIES] if sizes[code] >= _LEAST_NODES]


def _fit_category(column: Column, codes: NDArray[np.int64], has_missing: bool) -> ColumnEncoding:
    sizes = np.bincount(codes, minlength=len(column.values))
    often = kept_values(sizes)
    kept = tuple(column.values[code] for code in sorted(often))
    has_other = int(sizes.sum()) > int(sizes[often].sum())
    return ColumnEncoding(column.name, "category", values=kept, has_other=has_other, has_missing=has_missing)


def _places_of_codes(encoding: ColumnEncoding, column: Column, position: int) -> list[int]:
    """Where each code of the table's own column is marked; -1 for nowhere."""
    other = position + len(encoding.values) if encoding.has_other else -1
    return [other if k is None else position + k for k in _indices(encoding, column.values)]


def _indices(encoding: ColumnEncoding, values: Sequence[str]) -> list[int | None]:
    """The index of each value among those of the encoding, None where it has no such value."""
    kept = {value: k for k, value in enumerate(encoding.values)}
    # A boolean of a typed table is `true` here; Python and pandas write `True` into text files, spreadsheets `TRUE`.
    booleans = {value.lower(): k for value, k in kept.items() if value.lower() in ("true", "false")}
    return [kept.get(value, booleans.get(value.lower())) for value in values]


def _new_values(encoding: ColumnEncoding, column: Column, given: NDArray[Any]) -> list[str]:
    """A note if the column has values that the fit had not."""
    if encoding.kind != "category":
        return []
    new = np.array([k is None for k in _indices(encoding, column.values)], dtype=bool)
    count = int(new[given[~np.isnan(given)].astype(np.int64)].sum())
    return [f"attribute '{encoding.name}': {count:,} values unknown to the model are read as 'other'"] if count else []


def _checked(entry: dict[str, Any]) -> ColumnEncoding:
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
    column = ColumnEncoding(**fields)
    if column.kind not in ("number", "category") or not isinstance(column.name, str):
        raise ValueError(f"column {column.name!r} is of kind {column.kind!r}")
    knots = np.asarray(column.knots, dtype=np.float64)
    bad = len(knots) != len(column.scores) or (column.kind == "number" and not len(knots))
    if bad or not np.isfinite([*knots, *column.scores]).all() or np.any(np.diff(knots) <= 0):
        raise ValueError(f"the values of column {column.name!r} do not ascend")
    return column
