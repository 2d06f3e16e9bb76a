"""`burnish runs`: lists the runs below a folder, and hands on to what looks into them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from burnish.core.errors import SettingError, did_you_mean

from ..console import cut, say
from ..flags import Flag
from ..parse import Given, parse
from ..results import figure
from .found import FoundRun, find_runs
from .table import fitted, size, width_of_terminal

HELP = """\
Lists runs and looks into them: those of `burnish train`, of scripts with `burnish.Trainer`, and of
`transformers.Trainer`.

Usage: burnish runs [FOLDER]                 the runs in FOLDER (here) and below, newest first
       burnish runs verify CHECKPOINT_OR_RUN …        is every file as it was written?
       burnish runs diff RUN_A RUN_B         settings, versions, data and model that differ; results
       burnish runs rerun RUN [--output_dir NEW] [flags]   the same command, into a new folder

Flags:
  --json     what was found as JSON, for programs (not for rerun)

The list:
  run        its folder
  state      running     its process is at work
             finished    it came to its end; the results are there
             stopped     by Ctrl-C or a signal
             failed      by an error, which is told below the table
             killed      it was at work, and its process is gone
             unfinished  steps are left (transformers.Trainer, which does not say why it ended)
             unknown     it was at work on another machine
             damaged     its run.json cannot be read
  step       done / of how many
  best       the best evaluation: by metric_for_best_model, else by eval_loss
  size       all files of the run on the disk
  when       it was last active
  resume     the newest whole checkpoint that it can go on from: by the same command, or in a
             script by trainer.train(resume_from_checkpoint=True). Torn checkpoints are named
             below the table.

verify       reads every file of each checkpoint and compares size and SHA-256 with its manifest;
             names the files that differ or are missing. Of checkpoints of transformers, which
             have no manifest, and of the final model it checks that the files can be read.
             Exit code 1 if anything is wrong.
diff         tells of each setting where it came from: default, file, flag, argument, derived
             (follows from others). A data file that only moved is the same file.
rerun        takes the folder of a run, or its run.json, and repeats its flags and those of its
             settings file; flags given here go before them. Without --output_dir the new folder
             is RUN-rerun. It warns where data files, versions or the git commit are not what
             they were. Of a run that your own script started, it prints the command.

What a run was is in run.json in its folder. Environment variables and tokens are not recorded.
"""
FLAGS = {
    "json": Flag("json", "bool", False, "What was found as JSON.", "Flags", "run", alone=True),
    "debug": Flag("debug", "bool", False, "Show where in the code an error arose.", "Flags", "run", alone=True),
}
DROPPABLE = ("by", "size", "when", "best")
"""Columns that a narrow terminal goes without, the first one first."""


def command(words: Sequence[str]) -> int:
    """Runs `burnish runs` with the words that follow it. Returns the exit code."""
    name, rest = (words[0], words[1:]) if words else ("", ())
    if {"-h", "--help", "--help-all"} & set(words) and name != "rerun":
        say(HELP.rstrip())
        return 0
    if name == "verify":
        from .verify import verify

        return verify(parse(rest, FLAGS))
    if name == "diff":
        from .diff import diff

        return diff(parse(rest, FLAGS))
    if name == "rerun":
        from .rerun import rerun

        return rerun(rest)
    return _list(parse(words, FLAGS))


def _list(given: Given) -> int:
    if len(given.words) > 1:
        raise SettingError(
            f"One folder is listed at a time, not {len(given.words)}: {' '.join(given.words)}."
            f"{did_you_mean(given.words[0], ('verify', 'diff', 'rerun'))} See `burnish runs --help`."
        )
    top = Path(given.words[0] if given.words else ".")
    if not top.is_dir() and (hint := did_you_mean(str(top), ("verify", "diff", "rerun"))):
        raise SettingError(f"{top}: neither a folder nor a command of `burnish runs`.{hint}")
    found = find_runs(top)
    if given.values.get("json"):
        say(json.dumps([run.told() for run in found], indent=2))
    elif not found:
        say(f"There are no runs in {top} and below.")
    else:
        for line in listing(found, top, width_of_terminal()):
            say(line)
    return 0


def listing(found: Sequence[FoundRun], top: Path, width: int | None) -> list[str]:
    """The table, and what needs a line of its own."""
    mixed = len({run.by for run in found}) > 1
    columns = ["run", *(["by"] if mixed else []), "state", "step", "best", "size", "when", "resume"]
    rows = [[_name(run, top), *([run.by] if mixed else []), *_cells(run)] for run in found]
    notes = [note for run in found for note in _notes(run, _name(run, top))]
    shown = notes if width is None else [cut(note, width) for note in notes]
    return [*fitted(columns, rows, width, DROPPABLE), *([""] if notes else []), *shown]


def _name(run: FoundRun, top: Path) -> str:
    return str(run.folder if run.folder == top else run.folder.relative_to(top))


def _cells(run: FoundRun) -> list[str]:
    when = datetime.fromtimestamp(run.last_active).strftime("%Y-%m-%d %H:%M")
    return [run.state, _step(run), _best(run), size(run.num_bytes), when, run.resume_from or "-"]


def _step(run: FoundRun) -> str:
    if run.step is None:
        return f"0/{run.max_steps}" if run.max_steps else "-"
    return f"{run.step}/{run.max_steps or '?'}"


def _best(run: FoundRun) -> str:
    if run.best is None or not isinstance(run.best.get("value"), (int, float)):
        return "-"
    name = str(run.best["metric"]).removeprefix("eval_")
    return f"{name} {figure(name, run.best['value'])}"


def _notes(run: FoundRun, name: str) -> list[str]:
    notes = [f"{name}: {checkpoint} is torn: {problem}" for checkpoint, problem in run.torn.items()]
    if run.manifest is not None and run.manifest.reason and run.state in ("failed", "stopped", "finished"):
        notes.insert(0, f"{name}: {run.state}: {run.manifest.reason}")
    return notes
