"""Runs the workloads, each library in a process of its own, in turns (A B A B), and compares.

    make bench                                          everything
    python benchmarks/run.py --workload walkthrough     one workload
    python benchmarks/run.py --quick                    only to see that all of it starts

First each library trains a few steps without dropout: their losses must agree, or the comparison is worth nothing and
the exit code is 1. Then the timed rounds, with dropout as usual. Measured is training only: CPU time of the process, in
one thread; wall time; peak memory of the process. The table and, as JSON, all runs go to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from surroundings import surroundings
from targets import Medians, Verdict
from workloads import HOW_TO_INSTALL, WORKLOADS, Workload, missing

HERE = Path(__file__).resolve().parent
TOLERANCE = 1e-3
"""Between losses of two libraries at one step, without dropout."""
QUICK_STEPS = 2
Runs = list[dict[str, Any]]


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


def check_runs(name: str, workload: Workload, steps: int) -> Runs:
    """Runs without dropout, several at once: nothing is timed."""
    with ThreadPoolExecutor(min(len(workload.libraries), os.cpu_count() or 1)) as pool:
        return list(pool.map(lambda library: run_once(name, library, steps, "--check"), workload.libraries))


def largest_disagreement(name: str, runs: Runs) -> float:
    """The largest difference of the losses of a step between the first run and the others."""
    losses = [run["losses"] for run in runs]
    if not losses[0] or any(len(one) != len(losses[0]) for one in losses):
        sys.exit(f"{name}: not every step was logged: {losses}")
    return max((abs(a - b) for other in losses[1:] for a, b in zip(losses[0], other, strict=True)), default=0.0)


def medians_of(workload: Workload, runs: Runs) -> Medians:
    return {library: _medians([run for run in runs if run["library"] == library]) for library in workload.libraries}


def _medians(runs: Runs) -> dict[str, float]:
    numbers = [name for name, value in runs[0].items() if isinstance(value, (int, float))]
    return {name: statistics.median(run[name] for run in runs) for name in numbers}


def table(workload: Workload, medians: Medians) -> str:
    """Medians by library; the last columns compare CPU time per step, and its inverse, with the first library."""
    columns = (("CPU s", 9), ("CPU ms/step", 13), ("wall s", 9), ("peak MiB", 10), ("added", 8), ("CPU/step", 10))
    lines = [f"{'library':<14}" + "".join(f"{name:>{width}}" for name, width in columns) + f"{'speed':>8}"]
    base = medians[workload.libraries[0]]["cpu_seconds_per_step"]
    for library, found in medians.items():
        per_step = found["cpu_seconds_per_step"]
        times = f"{found['cpu_seconds']:>9.2f}{1000 * per_step:>13.2f}{found['wall_seconds']:>9.2f}"
        memory = f"{found['peak_mib']:>10.0f}{found.get('above_mib', float('nan')):>8.0f}"
        lines.append(f"{library:<14}{times}{memory}{per_step / base:>9.3f}x{base / per_step:>7.2f}x")
    shares = [(library, found) for library, found in medians.items() if "gemm_share" in found]
    lines += [
        f"{library}: useful work at {found['useful_gflops']:.1f} of {found['gemm_gflops']:.1f} GFLOP/s of the machine"
        for library, found in shares
    ]
    return "\n".join(lines)


def compare(name: str, pairs: int, steps: int | None, folder: Path) -> bool:
    """Runs one workload and writes its results. Returns whether the losses agree."""
    workload = WORKLOADS[name]
    lines = [f"\n{name}"]
    if absent := missing(workload):
        lines.append(f"not installed: {', '.join(absent)} ({HOW_TO_INSTALL})")
        if set(absent) & {*workload.needs, "burnish"}:
            print("\n".join([*lines, "left out"]), flush=True)
            return True
        workload = replace(workload, libraries=tuple(each for each in workload.libraries if each not in absent))
    checks = []
    if workload.check_steps:
        checks = check_runs(name, workload, min(workload.check_steps, steps or workload.check_steps))
    runs: Runs = []
    for _ in range(min(pairs, workload.most_pairs)):
        runs += [run_once(name, library, steps or workload.steps) for library in workload.libraries]
    difference = largest_disagreement(name, checks or runs[: len(workload.libraries)])
    medians = medians_of(workload, runs)
    verdicts = [target.verdict(medians) for target in workload.targets]
    kind = "without dropout " if checks else ""
    lines.append(f"losses {kind}differ by at most {difference:.1e}{'' if difference <= TOLERANCE else ': TOO MUCH'}")
    lines += [table(workload, medians), *(verdict.text for verdict in verdicts)]
    print("\n".join(lines), flush=True)
    write(folder, name, lines, difference, runs, verdicts)
    return difference <= TOLERANCE


def write(
    folder: Path, name: str, lines: Sequence[str], difference: float, runs: Runs, verdicts: Sequence[Verdict]
) -> None:
    """The table as text, and all there is as JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {"workload": name, "largest_loss_difference": difference, "runs": runs}
    content = {**surroundings(), **found, "targets": [asdict(verdict) for verdict in verdicts]}
    (folder / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n")
    (folder / f"{name}.txt").write_text("\n".join(lines).lstrip() + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=WORKLOADS, action="append", help="may be given more than once")
    parser.add_argument("--pairs", type=int, default=3, help="rounds; the table shows medians")
    parser.add_argument("--steps", type=int, default=None, help="optimizer steps, instead of the workload's own")
    parser.add_argument(
        "--quick", action="store_true", help=f"one round of {QUICK_STEPS} steps: the figures mean nothing"
    )
    options = parser.parse_args()
    folder = HERE / "results"
    if options.quick:
        options.pairs, options.steps, folder = 1, options.steps or QUICK_STEPS, folder / "quick"
    names = options.workload or list(WORKLOADS)
    agree = {name: compare(name, options.pairs, options.steps, folder) for name in names}
    apart = [name for name, agrees in agree.items() if not agrees]
    if apart:
        print(f"\nLosses differ by more than {TOLERANCE}: the figures of {', '.join(apart)} do not count.")
    return 1 if apart else 0


if __name__ == "__main__":
    sys.exit(main())
