"""`burnish merge`: the model of a checkpoint, whole, in a folder of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from burnish.core.errors import SettingError, UserError

from .console import say
from .flags import Flag
from .help import help_text
from .parse import parse
from .quiet import quiet
from .threads import load_torch

USAGE = """\
Makes a model folder of a checkpoint that processes have written in parts (fsdp_config: "state_dict_type":
"SHARDED_STATE_DICT"), for from_pretrained and for other programs. One process, which holds one tensor at a time. Of a
checkpoint with a whole model it takes the files of the model alone.

Usage: burnish merge CHECKPOINT FOLDER
"""
FLAGS = (Flag("debug", "bool", False, "Show where in the code an error arose.", "Flags", "run", alone=True),)


def command(words: Sequence[str]) -> int:
    """Runs `burnish merge` with the words that follow it."""
    if {"-h", "--help", "--help-all"} & set(words):
        say(help_text(USAGE, FLAGS))
        return 0
    given = parse(words, {flag.name: flag for flag in FLAGS})
    if len(given.words) != 2:
        raise SettingError(
            "A checkpoint, and the folder for its model. For example: burnish merge out/checkpoint-500 model"
        )
    checkpoint, folder = map(Path, given.words)
    if not checkpoint.is_dir():
        raise UserError(f"There is no folder {checkpoint}.")
    load_torch()
    from burnish.checkpoint.merge import merge

    with quiet():
        names = merge(checkpoint, folder)
    size = sum((folder / name).stat().st_size for name in names)
    say(f"{folder}: the model of {checkpoint}, {len(names)} files, {size / 1e6:,.0f} MB")
    return 0
