"""Runs the workloads, each library in a process of its own, in turns (A B A B), and compares.

    make bench                                          everything
    python benchmarks/run.py --workload walkthrough     one workload
    python benchmarks/run.py --pairs 1 --steps 2        only to see that it starts; not kept as a result

First each library trains a few steps without dropout: their losses must agree, or the comparison is worth nothing and
the exit code is 1. Then the timed rounds, with dropout as usual. Measured is training only: CPU time of the process, in
one thread; wall time; peak memory of the process. Results go to benchmarks/results/ as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TOLERANCE = 1e-3
"""Between losses of two libraries at one step, without dropout."""


@dataclass(frozen=True)
class Workload:
    libraries: tuple[str, ...]
    """In the order of a round; the others are compared with the first."""
    steps: int
    check_steps: int


WORKLOADS = {
    "walkthrough": Workload(("transformers", "burnish"), steps=8, check_steps=2),
    "dynamic": Workload(("transformers", "burnish"), steps=30, check_steps=4),
    "overhead": Workload(("bare", "burnish", "transformers"), steps=300, check_steps=20),
}


def run_once(workload: str, library: str, steps: int, *flags: str) -> dict[str, Any]:
    """The report of one process."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "report.json"
        command = [sys.executable, str(HERE / f"{workload}.py"), "--library", library, "--steps", str(steps), *flags]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run([*command, "--out", str(out)], env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")
        report: dict[str, Any] = json.loads(out.read_text())
        return report


def largest_disagreement(name: str, workload: Workload, steps: int) -> float:
    """The largest difference of the losses of a step between the first library and the others, without dropout."""
    flags = ("--dropout", "0", "--logging_steps", "1")
    losses = [run_once(name, library, steps, *flags)["losses"] for library in workload.libraries]
    if any(len(one) != steps for one in losses):
        sys.exit(f"{name}: not every step was logged: {losses}")
    return max(abs(a - b) for other in losses[1:] for a, b in zip(losses[0], other, strict=True))


def median_of(runs: list[dict[str, Any]], library: str, measure: str) -> float:
    return statistics.median(run[measure] for run in runs if run["library"] == library)


def table(workload: Workload, runs: list[dict[str, Any]]) -> str:
    """Medians by library; the last columns compare CPU time per step, and its inverse, with the first library."""
    header = f"{'library':<14}{'CPU s':>9}{'CPU ms/step':>13}{'wall s':>9}{'peak MiB':>10}{'CPU/step':>10}{'speed':>8}"
    lines = [header]
    base = median_of(runs, workload.libraries[0], "cpu_seconds_per_step")
    for library in workload.libraries:
        cpu, wall, peak, per_step = (
            median_of(runs, library, measure)
            for measure in ("cpu_seconds", "wall_seconds", "peak_mib", "cpu_seconds_per_step")
        )
        figures = f"{cpu:>9.2f}{1000 * per_step:>13.2f}{wall:>9.2f}{peak:>10.0f}"
        lines.append(f"{library:<14}{figures}{per_step / base:>9.3f}x{base / per_step:>7.2f}x")
    return "\n".join(lines)


def surroundings() -> dict[str, Any]:
    """Versions, processor and command: what a figure means nothing without."""
    packages = ("burnish", "torch", "transformers", "accelerate", "datasets", "numpy")
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": " ".join(["python", "benchmarks/run.py", *sys.argv[1:]]),
        "cpu": processor(),
        "cores": os.cpu_count(),
        "commit": commit(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in packages},
    }


def version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def commit() -> str:
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=HERE, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def compare(name: str, pairs: int, steps: int | None) -> bool:
    """Runs one workload and writes its results. Returns whether the losses agree."""
    workload = WORKLOADS[name]
    check_steps = min(workload.check_steps, steps or workload.check_steps)
    difference = largest_disagreement(name, workload, check_steps)
    agree = difference <= TOLERANCE
    print(f"\n{name}: losses of {check_steps} steps without dropout differ by at most {difference:.1e}", flush=True)
    runs = []
    for _ in range(pairs):
        runs += [run_once(name, library, steps or workload.steps) for library in workload.libraries]
    print(table(workload, runs), flush=True)
    if steps is not None:
        return agree
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    content = {**surroundings(), "workload": name, "largest_loss_difference": difference, "runs": runs}
    (results / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n")
    return agree


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=WORKLOADS, action="append", help="may be given more than once")
    parser.add_argument("--pairs", type=int, default=3, help="rounds; the table shows medians")
    parser.add_argument("--steps", type=int, default=None, help="optimizer steps, instead of the workload's own")
    options = parser.parse_args()
    agree = [compare(name, options.pairs, options.steps) for name in options.workload or WORKLOADS]
    if not all(agree):
        print(f"\nThe losses of two libraries differ by more than {TOLERANCE}: these figures do not count.")
    return 0 if all(agree) else 1


if __name__ == "__main__":
    sys.exit(main())
