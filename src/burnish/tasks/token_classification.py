"""The task "token-classification": a tag for each word (named entities, parts of speech)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from burnish.core.errors import SettingError
from burnish.core.types import IGNORED_LABEL

from .label_values import name_of
from .metrics import are_bio, tagging_metrics
from .pretrained import load_config, load_pretrained
from .recipe import DataRequest, ModelRequest, TaskRun
from .splits import Splits, read_splits, with_held_out
from .tagged_words import read_conll
from .tags import TagScheme, check_tags, infer_tags, tag_balance, with_names
from .tokenising import LENGTH, TRUNCATED, identity_of, key_of, model_rows, were_truncated

if TYPE_CHECKING:
    from .word_tagger import WordTagger

NEED_PREFIX_SPACE = ("bloom", "gpt2", "roberta", "deberta", "xlm-roberta-xl", "longformer", "bart", "modernbert")
"""Models whose tokenizers tell a word from a piece of one by the space before it."""


@dataclass(frozen=True)
class TagTokeniser:
    """Tokenises batches of words; the tag of a word goes to its first token, the rest carry no loss."""

    tokenizer: Any
    scheme: TagScheme
    max_length: int | None
    with_tags: bool = True

    def key(self) -> str:
        return key_of(identity_of(self.tokenizer), self.scheme, self.max_length, self.with_tags, "first token")

    def __call__(self, batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        cut = self.max_length is not None
        words = [list(map(str, row)) for row in batch[self.scheme.words_column]]
        encoded = self.tokenizer(words, is_split_into_words=True, truncation=cut, max_length=self.max_length)
        found = {**encoded, LENGTH: [len(ids) for ids in encoded["input_ids"]]}
        found[TRUNCATED] = were_truncated(encoded, self.max_length)
        if self.with_tags:
            numbers = self.scheme.config_changes()["label2id"]
            tags = batch[self.scheme.tags_column]
            found["labels"] = [
                first_token_labels(encoded.word_ids(row), [numbers[name_of(tag)] for tag in tags[row]])
                for row in range(len(tags))
            ]
        return found


def first_token_labels(word_ids: Sequence[int | None], labels: Sequence[int]) -> list[int]:
    """One label a token: that of the word at its first token, -100 at its other tokens and at special tokens."""
    return [
        IGNORED_LABEL if word is None or (place and word_ids[place - 1] == word) else labels[word]
        for place, word in enumerate(word_ids)
    ]


class TokenClassification:
    """A tag for each word."""

    name = "token-classification"

    def prepare(self, data: DataRequest, model: ModelRequest) -> TaskRun:
        """Reads, checks, infers, loads and tokenises.

        Raises:
            DataError: naming file, row and value of what cannot be trained on.
            SettingError: the model cannot be loaded, or has no fast tokenizer.
        """
        splits = read_splits(data, read_txt=read_conll)
        scheme = infer_tags(splits, data, model)
        check_tags(splits, scheme)
        splits, notes = with_held_out(splits, data)
        task = {"task": self.name, "text_columns": [scheme.words_column], "label_columns": [scheme.tags_column]}
        base = load_pretrained(model, data, "AutoModelForTokenClassification", task,
                               tokenizer_settings=_word_settings(model), **scheme.config_changes())  # fmt: skip
        if not base.tokenizer.is_fast:
            raise SettingError("Words are aligned with tokens by a fast tokenizer, and this model has none.")
        run = TaskRun(model=base.model, processing_class=base.tokenizer)
        kind = f"{len(scheme.names)} tags" + (", which mark entities (BIO)" if are_bio(scheme.names) else "")
        run.notes = [("task", f"{self.name}: {kind}"), ("words column", scheme.words_column),
                     ("tags column", scheme.tags_column), *notes, *base.notes]  # fmt: skip
        self._add_rows(run, splits, TagTokeniser(base.tokenizer, scheme, base.max_length), data)
        run.data_collator = _collator(base.tokenizer)
        run.compute_metrics = tagging_metrics(scheme.names)
        run.metric_for_best_model = "f1" if are_bio(scheme.names) else "accuracy"
        return run

    def predictor(self, folder: Path) -> WordTagger:
        """Loads a folder that training has written."""
        from .word_tagger import WordTagger

        return WordTagger.load(folder)

    def _add_rows(self, run: TaskRun, splits: Splits, tokenise: TagTokeniser, data: DataRequest) -> None:
        scheme = tokenise.scheme
        columns = [scheme.words_column, scheme.tags_column]
        run.train_dataset, lengths = model_rows(with_names(splits.train, scheme), tokenise, columns, data)
        run.eval_dataset, _ = model_rows(with_names(splits.validation, scheme), tokenise, columns, data)
        if splits.test is not None and scheme.tags_column in splits.test.rows.column_names:
            run.predict_dataset, _ = model_rows(with_names(splits.test, scheme), tokenise, columns, data)
        else:
            plain = TagTokeniser(tokenise.tokenizer, scheme, tokenise.max_length, with_tags=False)
            run.predict_dataset, _ = model_rows(splits.test, plain, columns[:1], data)
        if splits.train is not None and lengths is not None:
            run.notes += [("tags", tag_balance(splits.train, scheme)), *lengths.notes()]


def _word_settings(model: ModelRequest) -> dict[str, Any]:
    kind = getattr(load_config(model), "model_type", "")
    return {"add_prefix_space": True} if kind in NEED_PREFIX_SPACE else {}


def _collator(tokenizer: Any) -> Any:
    from burnish.data.collators import DataCollatorForTokenClassification

    return DataCollatorForTokenClassification(tokenizer)
