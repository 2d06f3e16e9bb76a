"""Hundreds of trials, and what came of them as JSON: `make torture`."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", CUDA_VISIBLE_DEVICES="")
sys.path[0] = str(Path(__file__).resolve().parents[1])  # the folder of the tests, as pytest has it

from faults import harness, trials  # noqa: E402 (needs that path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=350, help="how many, shared out among the kinds of faults")
    parser.add_argument("--seed", type=int, default=0, help="of the first trial of each kind")
    parser.add_argument("--figures", type=Path, help="file for the figures")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="torture-"))
    straight = trials.Straight.in_folder(folder)
    print(f"the straight run: {straight.seconds:.1f} s, {straight.operations} operations on files; folder {folder}")
    begun = time.perf_counter()
    count: Counter[str] = Counter()
    failed: list[dict[str, Any]] = []
    kinds = [kind for kind in trials.FAULTS if kind != trials.NEEDS_MOUNT or harness.may_mount(folder)]
    for number in range(asked.trials):
        kind, seed = kinds[number % len(kinds)], asked.seed + number // len(kinds)
        try:
            told = trials.trial(kind, seed, folder / f"trial-{number}", straight)
        except Exception as error:
            told = [f"{type(error).__name__}: {error}"]
        count[kind] += 1
        if told:
            failed.append({"kind": kind, "seed": seed, "told": told})
            print(f"FAILED {kind}, seed {seed}: {told}")
        if (number + 1) % 50 == 0:
            print(f"{number + 1} of {asked.trials}, {len(failed)} failed, {time.perf_counter() - begun:.0f} s")
    figures = {
        "trials": dict(count),
        "failed": failed,
        "seed": asked.seed,
        "seconds": round(time.perf_counter() - begun),
        "operations": straight.operations,
        "platform": platform.platform(),
        "python": platform.python_version(),
    }
    if asked.figures:
        asked.figures.parent.mkdir(parents=True, exist_ok=True)
        asked.figures.write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps({**figures, "failed": len(failed)}, indent=2))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
