"""The task "masked-lm": fill in hidden words, to adapt an encoder to the texts of a field."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .causal_lm import perplexity_of
from .columns import require_columns, text_columns, texts_of
from .pretrained import load_pretrained
from .recipe import DataRequest, ModelRequest, TaskRun
from .splits import read_splits, with_held_out
from .tokenising import TextTokeniser, model_rows

if TYPE_CHECKING:
    from .mask_filler import MaskFiller


class MaskedLM:
    """One text a row, of which 15 % of the tokens are to be predicted, drawn anew in each pass."""

    name = "masked-lm"

    def prepare(self, data: DataRequest, model: ModelRequest) -> TaskRun:
        """Reads, checks, infers, loads and tokenises.

        Raises:
            DataError: naming file, row and value of what cannot be trained on.
            SettingError: the model cannot be loaded, has no mask token, or does not suit the settings.
        """
        splits = read_splits(data)
        columns = text_columns(splits.first, data.text_column)
        for table in (splits.train, splits.validation, splits.test):
            if table is not None:
                require_columns(table, columns, "--text_column")
                for column in columns:
                    texts_of(table, column)
        splits, notes = with_held_out(splits, data)
        base = load_pretrained(model, data, "AutoModelForMaskedLM", {"task": self.name, "text_columns": columns})
        run = TaskRun(model=base.model, processing_class=base.tokenizer)
        run.notes = [("task", self.name), ("text column", ", ".join(columns)), *notes, *base.notes]
        tokenise = TextTokeniser(base.tokenizer, tuple(columns), base.max_length, data.pad_to_max_length)
        run.train_dataset, lengths = model_rows(splits.train, tokenise, columns, data)
        run.eval_dataset, _ = model_rows(splits.validation, tokenise, columns, data)
        run.predict_dataset, _ = model_rows(splits.test, tokenise, columns, data)
        run.notes += lengths.notes() if lengths else []
        run.data_collator = _collator(base.tokenizer)
        run.metrics_of_loss = perplexity_of
        run.metric_for_best_model = "loss"
        return run

    def predictor(self, folder: Path) -> MaskFiller:
        """Loads a folder that training has written."""
        from .mask_filler import MaskFiller

        return MaskFiller.load(folder)


def _collator(tokenizer: Any) -> Any:
    from burnish.data.language_modeling import DataCollatorForLanguageModeling

    return DataCollatorForLanguageModeling(tokenizer)
