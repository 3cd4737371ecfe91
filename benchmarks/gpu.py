"""Everything that has to be run on a GPU after a change, in one call: tests, start-up, speed, scores.

    python benchmarks/gpu.py [--parts tests,start_up,speed,best,family] [--seconds 560] [--output build/gpu]

    tests      the tests marked `gpu`, which need one, and `device`, which take one where there is one
    start_up   benchmarks/start_up.py
    speed      benchmarks/speed.py: the fast path against the plain one, and an epoch of DBLP's size
    best       `train --quality best` on DBLP at 80 %, from command to report, with the features made in it
    family     benchmarks/family.py, 10,000 nodes, one seed

One part after the other, each in a process of its own. What a part prints goes to OUTPUT/PART.log as it comes, so that
a part that is stopped when the time is up leaves what it has. Exit code 1 if any part failed or was stopped.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PARTS = {
    "tests": ["-m", "pytest", "-q", "-m", "gpu or device", "-p", "no:cacheprovider"],
    "start_up": [str(HERE / "start_up.py")],
    "speed": [str(HERE / "speed.py"), "--parts", "check", "dblp"],
    "best": ["-m", "chronospike", "train", "dblp", "--quality", "best", "--set", "ratio=0.8", "--overwrite", "-o"],
    "family": [str(HERE / "family.py"), "--nodes", "10000", "--seeds", "1"],
}


def run_part(name: str, output: Path, seconds: float) -> str:
    """How a part ended, in a few words."""
    words = [sys.executable, *PARTS[name], *([str(output / "best")] if name == "best" else [])]
    paths = [str(HERE.parent / "src"), str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
    began = time.perf_counter()
    with (output / f"{name}.log").open("w") as log:
        try:
            code = subprocess.run(
                words, cwd=HERE.parent, env=environment, stdout=log, stderr=log, timeout=seconds, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            return f"stopped after {seconds:.0f} s"
    taken = time.perf_counter() - began
    return f"{'done' if code == 0 else f'failed with {code}'} in {taken:.1f} s"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS), help="names, in the order to run them in")
    parser.add_argument("--seconds", type=float, default=560, help="for all parts together")
    parser.add_argument("--output", type=Path, default=Path("build/gpu"))
    options = parser.parse_args()
    names = options.parts.split(",")
    if unknown := set(names) - PARTS.keys():
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    output = options.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    end, fine = time.perf_counter() + options.seconds, True
    for name in names:
        left = end - time.perf_counter()
        told = run_part(name, output, left) if left > 0 else "not begun"
        fine &= told.startswith("done")
        print(f"{name:<9} {told}", flush=True)
        for line in (output / f"{name}.log").read_text().splitlines()[-12:] if left > 0 else []:
            print(f"    {line}", flush=True)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
