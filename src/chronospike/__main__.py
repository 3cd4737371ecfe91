"""`python -m chronospike`."""

from __future__ import annotations

from chronospike.cli import main

main()
