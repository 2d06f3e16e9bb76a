"""The task "causal-lm": continue texts, or answer prompts."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from burnish.core.errors import DataError, SettingError

from .columns import require_columns, text_columns, texts_of
from .language_rows import CompletionTokeniser, DocumentTokeniser, blocks
from .pretrained import Pretrained, load_pretrained
from .recipe import DataRequest, ModelRequest, TaskRun
from .splits import Splits, read_splits, with_held_out
from .text_lines import read_lines
from .tokenising import model_rows

if TYPE_CHECKING:
    from .files import Table
    from .text_writer import TextWriter

PROMPTS = (
    ("prompt", "completion"),
    ("prompt", "response"),
    ("instruction", "response"),
    ("instruction", "output"),
    ("question", "answer"),
    ("input", "output"),
)
"""Usual names of a prompt and what follows it."""

BLOCK_TOKENS = 1024
"""Tokens of a block where none are asked for and the model takes more."""


def perplexity_of(loss: float) -> dict[str, float]:
    """The exponential of the mean loss of a token; infinite where it is beyond the largest number."""
    return {"perplexity": math.exp(loss) if loss < 700 else math.inf}


class CausalLM:
    """Texts in blocks, or prompts with completions."""

    name = "causal-lm"

    def prepare(self, data: DataRequest, model: ModelRequest) -> TaskRun:
        """Reads, checks, infers, loads and tokenises.

        Raises:
            DataError: naming file, row and value of what cannot be trained on.
            SettingError: the model cannot be loaded, or does not suit the settings.
        """
        splits = read_splits(data, read_txt=read_lines_whole)
        columns = _columns(splits.first, data)
        _check(splits, columns)
        splits, notes = with_held_out(splits, data, from_end=_is_one_text(splits.first))
        task = {"task": self.name, "text_columns": columns[:1], "label_columns": columns[1:]}
        base = load_pretrained(model, data, "AutoModelForCausalLM", task)
        _check_causal(base.model)
        run = TaskRun(model=base.model, processing_class=base.tokenizer)
        kind = "completions of prompts" if len(columns) == 2 else "texts in blocks"
        named = ("prompt, completion", ", ".join(columns)) if len(columns) == 2 else ("text column", columns[0])
        run.notes = [("task", f"{self.name}: {kind}"), named, *notes, *base.notes]
        self._add_rows(run, splits, base, columns, data)
        run.data_collator = _collator(base.tokenizer)
        run.metrics_of_loss = perplexity_of
        run.metric_for_best_model, run.has_prompts = "loss", len(columns) == 2
        return run

    def predictor(self, folder: Path) -> TextWriter:
        """Loads a folder that training has written."""
        from .text_writer import TextWriter

        return TextWriter.load(folder, "AutoModelForCausalLM")

    def _add_rows(self, run: TaskRun, splits: Splits, base: Pretrained, columns: list[str], data: DataRequest) -> None:
        """Tokenises each table, and notes what the training rows came to."""
        length = base.max_length or BLOCK_TOKENS
        if data.max_seq_length is None:
            length = min(length, BLOCK_TOKENS)

        def rows(table: Table | None) -> Any:
            if table is None:
                return None
            if len(columns) == 2:
                prompts = CompletionTokeniser(base.tokenizer, columns[0], columns[1], length)
                found, lengths = model_rows(table, prompts, columns, data)
                said = lengths.notes() if lengths else []
            else:
                documents = DocumentTokeniser(base.tokenizer, columns[0], ends=not _is_one_text(table))
                found, _ = model_rows(table, documents, columns, data)
                found = blocks(found, length)
                said = [("blocks", f"{len(found):,} of {length:,} tokens")]
            if table is splits.train:
                run.notes += said
            return found

        run.train_dataset, run.eval_dataset = rows(splits.train), rows(splits.validation)
        run.predict_dataset = rows(splits.test)


def _check_causal(model: Any) -> None:
    """Not of a model in parts, with which nothing can be computed before it is trained."""
    from burnish.core.zero_parts import lies_in_parts
    from burnish.models.causality import sees_following_tokens

    if not lies_in_parts(model) and sees_following_tokens(model):
        raise SettingError(
            f"{type(model).__name__} sees the words that it is to predict: its attention looks ahead, so it would only "
            "learn to copy. Take a model that was made to continue texts (GPT-2, Llama, …), or --task masked-lm."
        )


def read_lines_whole(path: Path) -> dict[str, list[Any]]:
    """The lines of a text file with their ends, blank ones included: put together they are the file again."""
    lines = read_lines(path, keep_ends=True)
    if not any(line.strip() for line in lines):
        raise DataError(f"{path}: there is no text in the file.")
    return {"text": lines}


def _is_one_text(table: Table) -> bool:
    """Whether the rows are the lines of one text, which go on from each other."""
    return table.source.removesuffix(".gz").endswith(".txt")


def _columns(table: Table, data: DataRequest) -> list[str]:
    """The text, or prompt and completion."""
    if data.text_column and data.label_column:
        return [*text_columns(table, data.text_column), *text_columns(table, data.label_column, flag="--label_column")]
    known = {name.lower(): name for name in table.rows.column_names}
    for pair in PROMPTS:
        if not data.text_column and all(name in known for name in pair):
            return [known[name] for name in pair]
    return text_columns(table, data.text_column)


def _check(splits: Splits, columns: list[str]) -> None:
    if len(columns) > 2:
        raise DataError(f"A prompt and a completion are two columns, not {len(columns)}: {', '.join(columns)}.")
    for table in (splits.train, splits.validation, splits.test):
        if table is None or _is_one_text(table):
            continue
        require_columns(table, columns, "--text_column")
        for column in columns:
            texts_of(table, column)


def _collator(tokenizer: Any) -> Any:
    from burnish.data.language_modeling import DataCollatorForLanguageModeling

    return DataCollatorForLanguageModeling(tokenizer, mlm=False)
