"""The `burnish` command: finds the sub-command, and turns errors into one message."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Callable, Sequence

from burnish.core.errors import (
    NonFiniteError,
    OutOfMemoryError,
    ProcessError,
    SettingError,
    UserError,
    did_you_mean,
    is_said,
)
from burnish.core.processes import launch

from .console import complain, say
from .notices import notices

HELP = """\
burnish: fine-tunes pretrained transformer models.

Usage: burnish COMMAND [flags]

Commands:
  train      fine-tune a model on your file
  plan       how much memory a run will take, and what would make it fit
  evaluate   measure a trained model on a file, and see where it is wrong
  predict    ask a trained model about a file, or about a sentence
  merge      make a plain model of a checkpoint that several processes have written
  runs       list runs; verify checkpoints, compare two runs, run one again
  demo       see it work: train on bundled reviews, offline, in a few minutes

  burnish COMMAND --help    the flags of a command
  burnish --version         the version

Try:
  burnish demo
  burnish train --task text-classification --model_name_or_path MODEL --train_file train.csv \\
      --validation_file validation.csv --output_dir out
  burnish predict out new.csv
"""
FAILED, MISUSED, INTERRUPTED = 1, 2, 130

Command = Callable[[Sequence[str]], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command line. Returns the exit code: 0 done, 1 could not be done, 2 misused, 130 interrupted. A run that
    another signal stops leaves with 128 and its number: 143 for SIGTERM, 138 for SIGUSR1."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words and words[0].startswith("--local_rank="):  # by DeepSpeed's launcher, which says it in LOCAL_RANK too
        del words[0]
    debug = "--debug" in words
    try:
        with notices():
            return _dispatch(words)
    except SettingError as error:
        return _explained(error, MISUSED, debug)
    except BrokenPipeError:  # whoever read the output, such as `head`, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (UserError, NonFiniteError, OutOfMemoryError, ProcessError, OSError) as error:
        return _explained(error, FAILED, debug)
    except KeyboardInterrupt:
        if launch().index == 0:
            complain("Interrupted.")
        return INTERRUPTED
    except ValueError as error:
        return _explained(error, FAILED, debug, " (--debug shows where this arose.)")
    except Exception as error:
        return _bug(error, debug)


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        say(HELP.rstrip())
        return 0 if words else MISUSED
    if words[0] in ("-V", "--version"):
        say(f"burnish {version()}")
        return 0
    name, *rest = words
    if name not in COMMANDS:
        raise SettingError(f"There is no command {name!r}.{did_you_mean(name, COMMANDS)} See `burnish --help`.")
    return COMMANDS[name](rest)


def _train(words: Sequence[str]) -> int:
    from .train import command

    return command(words)


def _predict(words: Sequence[str]) -> int:
    from .predict import command

    return command(words)


def _evaluate(words: Sequence[str]) -> int:
    from .evaluate import command

    return command(words)


def _plan(words: Sequence[str]) -> int:
    from .memory_plan import command

    return command(words)


def _merge(words: Sequence[str]) -> int:
    from .merge import command

    return command(words)


def _runs(words: Sequence[str]) -> int:
    from .runs.command import command

    return command(words)


def _demo(words: Sequence[str]) -> int:
    from .demo import command

    return command(words)


COMMANDS: dict[str, Command] = {
    "train": _train,
    "plan": _plan,
    "evaluate": _evaluate,
    "predict": _predict,
    "merge": _merge,
    "runs": _runs,
    "demo": _demo,
}


def version() -> str:
    import burnish

    return burnish.__version__


def _explained(error: BaseException, code: int, debug: bool, closing: str = "") -> int:
    if debug:
        traceback.print_exception(error)
    if not is_said(error):
        complain(f"burnish: {_message(error)}{closing}")
    return code


def _message(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        where = f"{error.filename}: " if error.filename is not None else ""
        return f"{where}{error.strerror}. Make room on the disk, and run the same command again."
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}." if error.filename is not None else f"{error.strerror}."
    return str(error).strip() or type(error).__name__


def _bug(error: BaseException, debug: bool) -> int:
    if debug:
        traceback.print_exception(error)
    place = traceback.extract_tb(error.__traceback__)[-1]
    complain(f"burnish: this is a bug in burnish, not a mistake of yours: {type(error).__name__}: {error}")
    complain(f"  at {place.filename}, line {place.lineno}" + ("" if debug else "; --debug shows the whole way there."))
    return FAILED
