"""Numba's compiler with a cache on disk that notices every change of the source.

Numba looks for changes in the file of a function alone, and a kernel kept using what it had compiled of a helper in
another file. It also numbers its files in an index, which two processes may write at once. Here a file of machine code
is named after all that it depends on: the function and its types, the CPU, numba's version, and the source of every
module with compiled functions. So a constant that a kernel reads must stand in such a module.
"""

from __future__ import annotations

import functools
import os
import pickle
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any
from uuid import uuid4

import numba
import numpy as np
from numba.core.caching import FunctionCache
from numba.core.serialize import dumps
from numpy.typing import NDArray

# For `fastmath`: sums may use vector instructions, and nothing assumes that there are no NaNs.
FAST = {"reassoc", "contract", "nsz", "arcp"}


def njit(function: Any = None, **options: Any) -> Any:
    """`numba.njit` that caches, and lets other threads run meanwhile."""
    if function is None:
        return functools.partial(njit, **options)
    compiled = numba.njit(nogil=True, **options)(function)
    # Where no folder can be written, every process compiles for itself.
    with suppress(RuntimeError):
        compiled._cache = _Cache(function)
    return compiled


def kernel_array(array: NDArray[Any], dtype: Any) -> NDArray[Any]:
    """The same values as a kernel wants them: contiguous, of one type, not to be written."""
    # Numba compiles once more for every other type, and for arrays that cannot be written, as memory maps are.
    found = np.ascontiguousarray(array, dtype=dtype).view(np.ndarray)
    found.flags.writeable = False
    return found


def kernel_sources() -> dict[Path, bytes]:
    """The modules of this package with compiled functions: their paths and text."""
    found = {}
    for folder, _, names in os.walk(Path(__file__).parent):
        for path in (Path(folder, name) for name in names if name.endswith(".py")):
            source = path.read_bytes()
            if b"njit" in source or b"from numba" in source:
                found[path] = source
    return found


@functools.cache
def _source_hash() -> str:
    sources = kernel_sources()
    return blake2b(b"".join(sources[path] for path in sorted(sources)), digest_size=8).hexdigest()


class _Cache(FunctionCache):
    """The cache of one function, in the folder that numba chooses: beside the source, or the user's own."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        self._cache_file = _Files(Path(self._cache_path), self._impl.filename_base)  # type: ignore[assignment]

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save what was compiled, if there is room for it: a full disk is no reason not to run it."""
        with suppress(OSError):
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]


class _Files:
    """A file for each set of argument types, and no index."""

    def __init__(self, folder: Path, base: str) -> None:
        self.folder, self.base = folder, base

    def load(self, key: Any) -> Any:
        """What was saved, or None. A file that is damaged is as good as none."""
        try:
            return pickle.loads(self._path(key).read_bytes())
        except (OSError, EOFError, pickle.UnpicklingError):
            return None

    def save(self, key: Any, data: Any) -> None:
        """Save for the next process, all or nothing, and remove what earlier versions of the source left."""
        path = self._path(key)
        partial = path.with_name(f"{path.name}.{uuid4().hex}")
        try:
            partial.write_bytes(dumps(data))
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        for file in self.folder.glob(f"{self.base}.*nb[ci]"):
            if _source_hash() not in file.name:
                file.unlink(missing_ok=True)

    def _path(self, key: Any) -> Path:
        types = blake2b(repr((numba.__version__, key)).encode(), digest_size=8).hexdigest()
        return self.folder / f"{self.base}.{_source_hash()}.{types}.nbc"
