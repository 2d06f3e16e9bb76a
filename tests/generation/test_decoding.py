"""Decoding a batch is decoding its rows one by one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiny
import torch
from transformers import GenerationConfig

from burnish.generation.decoding import decoding_config, generated, pad_id_of, settings_from

NEW = 5
GREEDY = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False}


def padded(rows: list[dict[str, Any]], side: str) -> dict[str, torch.Tensor]:
    longest = max(len(row["input_ids"]) for row in rows)
    fill = {"input_ids": tiny.PAD, "attention_mask": 0, "labels": -100}

    def filled(row: dict[str, Any], name: str) -> list[int]:
        gap = [fill[name]] * (longest - len(row[name]))
        return row[name] + gap if side == "right" else gap + row[name]

    return {name: torch.tensor([filled(row, name) for row in rows]) for name in rows[0]}


@pytest.mark.parametrize("side", ["right", "left"])
def test_a_decoder_continues_each_prompt_as_it_does_alone(side: str) -> None:
    model = tiny.llama().eval()
    rows = tiny.text_rows(4)
    for row in rows:
        row["labels"] = [-100] * 3 + row["input_ids"][3:]
    found = generated(model, padded(rows, side), False, tiny.PAD, **GREEDY)
    assert found.shape == (4, NEW)
    for row, answer in zip(rows, found, strict=True):
        prompt = torch.tensor([row["input_ids"][:3]])
        alone = model.generate(input_ids=prompt, attention_mask=torch.ones_like(prompt), **GREEDY)
        assert answer.tolist() == alone[0, 3:].tolist()


def test_an_encoder_decoder_reads_the_source_alone() -> None:
    model = tiny.t5().eval()
    rows = tiny.pair_rows(3)
    sources = padded([{name: row[name] for name in ("input_ids", "attention_mask")} for row in rows], "right")
    labels = torch.tensor([[5, 6], [7, 8], [9, tiny.SEP]])
    found = generated(model, {**sources, "labels": labels}, True, tiny.PAD, **GREEDY)
    assert torch.equal(found, generated(model, sources, True, tiny.PAD, **GREEDY))
    for i, row in enumerate(rows):
        alone = model.generate(input_ids=torch.tensor([row["input_ids"]]), **GREEDY)
        assert found[i].tolist() == alone[0].tolist()


def test_nothing_is_remembered_for_a_gradient() -> None:
    model = tiny.llama().train()
    batch = {"input_ids": torch.tensor([[5, 6]])}
    assert generated(model, batch, False, tiny.PAD, **GREEDY).grad_fn is None


@pytest.mark.parametrize(
    ("max_length", "num_beams", "given", "expected"),
    [
        (None, None, {}, {}),
        (20, 4, {}, {"max_length": 20, "num_beams": 4}),
        (20, 4, {"max_length": 30, "num_beams": 1}, {"max_length": 30, "num_beams": 1}),
        (20, None, {"max_new_tokens": 5}, {"max_new_tokens": 5}),
        (20, 4, {"max_length": None, "num_beams": None, "top_k": 3}, {"max_length": 20, "num_beams": 4, "top_k": 3}),
    ],
)
def test_what_is_given_to_the_call_comes_first(
    max_length: Any, num_beams: Any, given: dict[str, Any], expected: dict[str, Any]
) -> None:
    before = dict(given)
    assert settings_from(max_length, num_beams, given) == expected
    assert given == before


def with_ids(pad: Any, eos: Any) -> Any:
    return SimpleNamespace(
        config=SimpleNamespace(pad_token_id=pad), generation_config=SimpleNamespace(eos_token_id=eos)
    )


@pytest.mark.parametrize(
    ("tokenizer", "model", "expected"),
    [
        (SimpleNamespace(pad_token_id=7), with_ids(1, 2), 7),
        (None, with_ids(1, 2), 1),
        (SimpleNamespace(pad_token_id=None), with_ids(None, 2), 2),
        (None, with_ids(None, [3, 4]), 3),
        (None, with_ids(-1, 2), 2),  # what some older configs have for none
        (None, with_ids(None, []), 0),
        (None, object(), 0),
        (None, with_ids(0, 2), 0),
    ],
)
def test_what_fills_up_shorter_texts(tokenizer: Any, model: Any, expected: int) -> None:
    assert pad_id_of(model, tokenizer) == expected


def test_a_decoding_config_of_a_folder_or_an_object(tmp_path: Path) -> None:
    config = GenerationConfig(num_beams=3)
    config.save_pretrained(tmp_path)
    for given in (str(tmp_path), tmp_path, config):
        found = decoding_config(given)
        assert found.num_beams == 3 and found is not config
    assert decoding_config(None) is None
