from __future__ import annotations

import numpy as np

from chronospike.data.text_hash import hash_texts
from chronospike.rng import derive, signed


def test_the_hash_is_fnv_1a_mixed_once_more() -> None:
    # The published FNV-1a of "", "a" and "foobar".
    known = [0xCBF29CE484222325, 0xAF63DC4C8601EC8C, 0x85944171F73967E8]
    text = np.frombuffer(b"afoobar", dtype=np.uint8)
    assert hash_texts(text, np.array([0, 0, 1, 7])).tolist() == [signed(derive(word, 0)) for word in known]
