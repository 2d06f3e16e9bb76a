"""Collators agree with those of transformers where those are right, and differ where padding would carry loss."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tiny
import torch
import transformers

from burnish.core.errors import DataError, SettingError
from burnish.core.randomness import seed_all
from burnish.data.collators import (
    DataCollatorForMultipleChoice,
    DataCollatorForSeq2Seq,
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    DefaultDataCollator,
    default_collator_for,
    default_data_collator,
)
from burnish.data.language_modeling import DataCollatorForLanguageModeling
from burnish.data.padding import PaddingCollator

LENGTHS = (3, 6, 4)


def rows(**further: Any) -> list[dict[str, Any]]:
    """Ragged rows; a further column is a function of the row's number and length."""
    return [
        {"input_ids": tiny.words(length, i), "attention_mask": [1] * length}
        | {name: value(i, length) for name, value in further.items()}
        for i, length in enumerate(LENGTHS)
    ]


def same(ours: Any, theirs: Any) -> None:
    assert set(ours) == set(theirs)
    for name in theirs:
        torch.testing.assert_close(ours[name], theirs[name])


# ---------------------------------------------------------------- without a tokenizer


def test_default_collator_stacks_like_that_of_transformers() -> None:
    features = [
        {
            "input_ids": tiny.words(4, i),
            "pixels": np.full((2, 3), i, dtype=np.float32),
            "weight": torch.tensor(float(i)),
            "flag": i == 0,
            "label": i,
            "text": "left out",
            "nothing": None,
        }
        for i in range(3)
    ]
    same(default_data_collator(features), transformers.default_data_collator(features))
    same(DefaultDataCollator()(features), transformers.default_data_collator(features))
    assert isinstance(default_data_collator(features, return_tensors="np")["labels"], np.ndarray)


@pytest.mark.parametrize(
    ("label", "dtype"),
    [
        (1, torch.long),
        (True, torch.long),
        (np.int32(1), torch.long),
        (torch.tensor(1, dtype=torch.int16), torch.long),
        (0.5, torch.float32),
        (np.float64(0.5), torch.float32),
        ([0.0, 1.0], torch.float32),
    ],
)
@pytest.mark.parametrize("name", ["label", "label_ids", "labels"])
def test_labels_are_called_labels_and_are_long_or_float(label: Any, dtype: torch.dtype, name: str) -> None:
    batch = PaddingCollator()([{name: label}, {name: label}])
    assert list(batch) == ["labels"]
    assert batch["labels"].dtype is dtype


def test_rows_may_be_objects_with_attributes() -> None:
    @dataclass
    class Row:
        x: list[float]
        label: int

    pair = namedtuple("pair", "x label")
    for kind in (Row, pair):
        batch = PaddingCollator()([kind([1.0, 2.0], 0), kind([3.0, 4.0], 1)])
        assert batch["x"].tolist() == [[1.0, 2.0], [3.0, 4.0]]
        assert batch["labels"].tolist() == [0, 1]


def test_rows_without_names_are_refused() -> None:
    with pytest.raises(DataError, match=r"Row 0 of the batch is a tuple.*dicts"):
        PaddingCollator()([([1, 2], 0), ([3, 4], 1)])


@pytest.mark.parametrize("side", ["right", "left"])
def test_padding_collator_pads_and_masks(side: str) -> None:
    features = [
        {"input_ids": [5, 6, 7], "labels": [1, 2, 3], "token_type_ids": [1, 1, 1]},
        {"input_ids": [8], "labels": [4], "token_type_ids": [1]},
    ]
    batch = PaddingCollator(pad_token_id=9, padding_side=side)(features)
    short = {
        "input_ids": [8, 9, 9],
        "labels": [4, -100, -100],
        "token_type_ids": [1, 0, 0],
        "attention_mask": [1, 0, 0],
    }
    for name, expected in short.items():
        assert batch[name][1].tolist() == (expected if side == "right" else expected[::-1])
        assert batch[name].dtype is torch.long


def test_padding_collator_keeps_masks_of_the_rows_and_makes_none_for_even_rows() -> None:
    masked = PaddingCollator()(
        [{"input_ids": [5, 6], "attention_mask": [0, 1]}, {"input_ids": [7], "attention_mask": [1]}]
    )
    assert masked["attention_mask"].tolist() == [[0, 1], [1, 0]]
    assert masked["input_ids"].tolist() == [[5, 6], [7, 0]]
    assert "attention_mask" not in PaddingCollator()([{"input_ids": [5, 6]}, {"input_ids": [7, 8]}])


def test_padding_collator_pads_arrays_tensors_and_empty_rows() -> None:
    values = [np.array([5, 6]), torch.tensor([7]), []]
    batch = PaddingCollator()([{"input_ids": value} for value in values])
    assert batch["input_ids"].tolist() == [[5, 6], [7, 0], [0, 0]]
    assert batch["attention_mask"].tolist() == [[1, 1], [1, 0], [0, 0]]


@pytest.mark.parametrize("ragged", [([1.0, 2.0], [1.0]), ([[1, 2], [3, 4]], [[1, 2]])])
def test_ragged_columns_that_cannot_be_padded_are_named(ragged: tuple[Any, Any]) -> None:
    with pytest.raises(DataError, match=r"`audio` is ragged: row 0 .*2.*row 1 .*1.*data_collator.*processing_class"):
        PaddingCollator()([{"audio": ragged[0]}, {"audio": ragged[1]}])


def test_default_collator_does_not_pad() -> None:
    with pytest.raises(DataError, match=r"`input_ids` is ragged: row 0 of the batch has 3 values, row 1 has 6 values"):
        default_data_collator(rows())


def test_labels_of_text_and_half_empty_columns_are_named() -> None:
    with pytest.raises(DataError, match=r"`label` is text \('pos'"):
        PaddingCollator()([{"x": 1, "label": "pos"}, {"x": 2, "label": "neg"}])
    with pytest.raises(DataError, match="`x` has no value in row 1"):
        PaddingCollator()([{"x": 1}, {"x": None}])
    with pytest.raises(DataError, match="`x` cannot become a tensor"):
        PaddingCollator()([{"x": {"a": 1}}, {"x": {"a": 2}}])


# ---------------------------------------------------------------- with a tokenizer


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("settings", [{}, {"pad_to_multiple_of": 4}, {"padding": "max_length", "max_length": 10}])
def test_padding_and_token_classification_agree_with_transformers(side: str, settings: dict[str, Any]) -> None:
    tokenizer = tiny.tokenizer(padding_side=side)
    features = rows(label=lambda i, length: i)
    ours = DataCollatorWithPadding(tokenizer, **settings)(features)
    same(ours, transformers.DataCollatorWithPadding(tokenizer, **settings)(features))

    features = rows(labels=lambda i, length: list(range(length)))
    ours = DataCollatorForTokenClassification(tokenizer, **settings, label_pad_token_id=-7)(features)
    theirs = transformers.DataCollatorForTokenClassification(tokenizer, **settings, label_pad_token_id=-7)(features)
    same(ours, theirs)


def test_collator_with_padding_masks_pads_labels_and_leaves_text_out() -> None:
    features = [
        {"input_ids": [5, 6, 7], "labels": [1, 2, 3], "place": [4, 5, 6], "text": "a"},
        {"input_ids": [8], "labels": [4], "place": [7], "text": "b"},
    ]
    batch = DataCollatorWithPadding(tiny.tokenizer(), pad_to_multiple_of=4)(features)
    assert "text" not in batch
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 0], [1, 0, 0, 0]]
    assert batch["labels"].tolist() == [[1, 2, 3, -100], [4, -100, -100, -100]]
    assert batch["place"].tolist() == [[4, 5, 6, 0], [7, 0, 0, 0]]


def test_collator_with_padding_names_what_untokenised_rows_have() -> None:
    with pytest.raises(DataError, match=r"no `input_ids`, only \['words'\].*Tokenise"):
        DataCollatorWithPadding(tiny.tokenizer())([{"words": 3, "text": "some words"}])


def test_token_classification_needs_a_label_for_each_token() -> None:
    with pytest.raises(DataError, match="Row 1 of the batch has 2 tokens and 3 labels"):
        DataCollatorForTokenClassification(tiny.tokenizer())(
            [{"input_ids": [5, 6], "labels": [0, 1]}, {"input_ids": [5, 6], "labels": [0, 1, 1]}]
        )


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("settings", [{}, {"pad_to_multiple_of": 4}, {"padding": "max_length", "max_length": 10}])
def test_seq2seq_agrees_with_transformers(side: str, settings: dict[str, Any]) -> None:
    tokenizer, model = tiny.tokenizer(padding_side=side), tiny.t5()
    features = rows(labels=lambda i, length: tiny.words(i + 1, i))
    ours = DataCollatorForSeq2Seq(tokenizer, model=model, **settings)(features)
    theirs = transformers.DataCollatorForSeq2Seq(tokenizer, model=model, **settings)(features)
    same(ours, theirs)
    assert set(DataCollatorForSeq2Seq(tokenizer)(rows())) == {"input_ids", "attention_mask"}


def test_multiple_choice_agrees_with_transformers() -> None:
    features = [
        {
            "input_ids": [tiny.words(i + c + 1, i) for c in range(2)],
            "attention_mask": [[1] * (i + c + 1) for c in range(2)],
        }
        for i in range(3)
    ]
    labelled = [{**row, "label": i % 2} for i, row in enumerate(features)]
    tokenizer = tiny.tokenizer()
    theirs = transformers.DataCollatorForMultipleChoice(tokenizer)([dict(row) for row in labelled])
    same(DataCollatorForMultipleChoice(tokenizer)(labelled), theirs)
    assert "labels" not in DataCollatorForMultipleChoice(tokenizer)(features)
    features[2]["input_ids"].append([5])
    with pytest.raises(DataError, match="Row 2 of the batch has 3 choices"):
        DataCollatorForMultipleChoice(tokenizer)(features)


def test_default_collator_for_a_processing_class() -> None:
    assert isinstance(default_collator_for(tiny.tokenizer()), DataCollatorWithPadding)
    assert default_collator_for(None, pad_token_id=3) == PaddingCollator(3)
    without_pad = tiny.tokenizer(pad_token=None, padding_side="left")
    assert default_collator_for(without_pad, 4) == PaddingCollator(4, "left")
    assert isinstance(default_collator_for(transformers.Wav2Vec2FeatureExtractor()), DataCollatorWithPadding)
    assert isinstance(default_collator_for(transformers.CLIPImageProcessorPil()), PaddingCollator)


def test_feature_extractor_pads_audio() -> None:
    collator = default_collator_for(transformers.Wav2Vec2FeatureExtractor(return_attention_mask=True))
    batch = collator([{"input_values": [0.5] * 4, "labels": [1, 2]}, {"input_values": [0.5] * 6, "labels": [1]}])
    assert batch["input_values"].shape == (2, 6)
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1, 0, 0], [1] * 6]
    assert batch["labels"].tolist() == [[1, 2], [1, -100]]


def test_unknown_framework_is_refused() -> None:
    with pytest.raises(SettingError, match="'tf'"):
        DataCollatorWithPadding(tiny.tokenizer(), return_tensors="tf")(rows())


# ---------------------------------------------------------------- language modelling


@pytest.mark.parametrize("side", ["right", "left"])
def test_causal_labels_are_the_tokens_but_for_padding_even_if_pad_is_end_of_text(side: str) -> None:
    end = tiny.SEP
    collator = DataCollatorForLanguageModeling(
        tiny.tokenizer(eos_token="[SEP]", pad_token="[SEP]", padding_side=side), mlm=False
    )
    batch = collator([{"input_ids": [10, end]}, {"input_ids": [11, 12, 13, end]}])
    padding, short = [-100, -100], [10, end]
    assert batch["labels"].tolist() == [short + padding if side == "right" else padding + short, [11, 12, 13, end]]


def test_causal_labels_at_padding_that_the_rows_brought_along() -> None:
    collator = DataCollatorForLanguageModeling(tiny.tokenizer(), mlm=False)
    with_mask = collator([{"input_ids": [10, 11, 12], "attention_mask": [1, 1, 0]}])
    assert with_mask["labels"].tolist() == [[10, 11, -100]]
    assert collator([{"input_ids": [10, tiny.PAD]}])["labels"].tolist() == [[10, -100]]
    assert collator([[10, 11], [12]])["labels"].tolist() == [[10, 11], [12, -100]]


def test_causal_labels_of_the_rows_are_kept_and_class_labels_dropped() -> None:
    collator = DataCollatorForLanguageModeling(tiny.tokenizer(), mlm=False)
    prompted = [{"input_ids": [10, 11, 12], "labels": [-100, 11, 12]}, {"input_ids": [13], "labels": [13]}]
    assert collator(prompted)["labels"].tolist() == [[-100, 11, 12], [13, -100, -100]]
    classes = [{"input_ids": [10, 11], "label": 1}, {"input_ids": [12], "label": 0}]
    assert collator(classes)["labels"].tolist() == [[10, 11], [12, -100]]
    assert set(collator(classes)) == {"input_ids", "attention_mask", "labels"}


def test_masking_has_the_shares_asked_for_and_spares_special_tokens() -> None:
    features = [{"input_ids": [tiny.CLS, *tiny.words(198, i), tiny.SEP]} for i in range(100)] + [{"input_ids": [9]}]
    collator = DataCollatorForLanguageModeling(
        tiny.tokenizer(), mlm_probability=0.3, mask_replace_prob=0.6, random_replace_prob=0.3
    )
    torch.manual_seed(0)
    batch = collator(features)
    original = DataCollatorWithPadding(tiny.tokenizer())(features)["input_ids"]
    chosen = batch["labels"] != -100
    assert torch.equal(batch["labels"][chosen], original[chosen])
    assert torch.equal(batch["input_ids"][~chosen], original[~chosen])
    assert not chosen[original < tiny.FIRST_WORD].any()
    masked = batch["input_ids"][chosen] == tiny.MASK
    kept = batch["input_ids"][chosen] == original[chosen]
    assert chosen[:100].float().mean().item() == pytest.approx(0.3 * 198 / 200, abs=0.02)
    assert masked.float().mean().item() == pytest.approx(0.6 + 0.3 / tiny.NUM_WORDS, abs=0.03)
    assert kept.float().mean().item() == pytest.approx(0.1 + 0.3 / tiny.NUM_WORDS, abs=0.03)


def test_masks_of_the_rows_say_what_is_special() -> None:
    collator = DataCollatorForLanguageModeling(tiny.tokenizer(), mlm_probability=1.0)
    batch = collator([{"input_ids": [10, 11, 12], "special_tokens_mask": [0, 1, 0]}])
    assert batch["labels"].tolist() == [[10, -100, 12]]
    assert "special_tokens_mask" not in batch


def test_masking_is_a_function_of_the_global_state_and_the_seed() -> None:
    def masks(seed: int | None, state: int) -> list[list[int]]:
        seed_all(state)
        collator = DataCollatorForLanguageModeling(tiny.tokenizer(), mlm_probability=0.5, seed=seed)
        labels: list[list[int]] = collator([{"input_ids": tiny.words(40, 0)}])["labels"].tolist()
        return labels

    for seed in (None, 3):
        assert masks(seed, 1) == masks(seed, 1) != masks(seed, 2)
    assert masks(3, 1) != masks(4, 1)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"whole_word_mask": True}, "whole_word_mask"),
        ({"mlm_probability": 15}, "mlm_probability=15"),
        ({"mask_replace_prob": 0.8, "random_replace_prob": 0.3}, "more than 1"),
    ],
)
def test_masking_settings_that_cannot_be_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        DataCollatorForLanguageModeling(tiny.tokenizer(), **settings)


def test_masking_needs_a_mask_token() -> None:
    with pytest.raises(SettingError, match="mlm=False"):
        DataCollatorForLanguageModeling(tiny.tokenizer(mask_token=None))
