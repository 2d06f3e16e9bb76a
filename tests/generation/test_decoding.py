"""Settings of decoding: which of several counts, and what they say."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiny
from transformers import GenerationConfig

from burnish.core.errors import SettingError
from burnish.generation.decoding import Asked, decoding_config, pad_id_of, settings_from


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


def test_the_longest_text_is_without_the_prompt() -> None:
    assert settings_from(20, None, {}, is_encoder_decoder=False) == {"max_new_tokens": 20}
    assert settings_from(20, None, {"max_length": 9}, is_encoder_decoder=False) == {"max_length": 9}


def test_one_text_a_row() -> None:
    with pytest.raises(SettingError, match="num_return_sequences=2"):
        settings_from(None, None, {"num_return_sequences": 2})


def test_the_call_the_config_and_the_model_in_this_order() -> None:
    model = tiny.llama()
    model.generation_config.top_k = 7
    model.generation_config.temperature = 0.5
    config = GenerationConfig(do_sample=True, temperature=0.6, max_length=40)
    decoding = Asked(model, {"generation_config": config, "max_length": 30}).decoding()
    assert decoding.max_length == 30 and decoding.ends == (tiny.SEP,)
    assert decoding.sampling is not None
    assert (decoding.sampling.temperature, decoding.sampling.top_k, decoding.sampling.top_p) == (0.6, 7, 1.0)
    assert Asked(model, {}).decoding().sampling is None


def test_lengths() -> None:
    model = tiny.llama(eos_token_id=None)
    model.generation_config.eos_token_id = None
    assert Asked(model, {}).decoding().most(5) == 20  # as transformers does where nothing is said
    assert Asked(model, {}).decoding().ends == ()
    assert Asked(model, {"max_length": 12}).decoding().most(5) == 7
    assert Asked(model, {"max_length": 12, "max_new_tokens": 3}).decoding().most(5) == 3
    assert Asked(model, {"max_new_tokens": 30}).decoding().most(5, positions=16) == 11
    assert Asked(model, {"min_length": 12}).decoding().least(5) == 7
    assert Asked(model, {"min_length": 12, "min_new_tokens": 2}).decoding().least(5) == 2


def test_what_is_not_understood_is_told_apart_from_what_does_nothing() -> None:
    model = tiny.llama()
    nothing = {"num_beams": 1, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "bad_words_ids": None}
    silent = {"use_cache": False, "return_dict_in_generate": True, "output_scores": True, "length_penalty": 2.0}
    assert Asked(model, {**nothing, **silent, "max_new_tokens": 3, "top_k": 4}).further() == {}
    changing = {"num_beams": 2, "no_repeat_ngram_size": 1, "bad_words_ids": [[4]], "logits_processor": [print]}
    assert Asked(model, {**changing, "do_sample": True}).further() == changing


@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_a_temperature_must_be_above_zero(temperature: float) -> None:
    with pytest.raises(SettingError, match="temperature"):
        Asked(tiny.llama(), {"do_sample": True, "temperature": temperature}).decoding()


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


def test_a_decoding_config_of_a_folder_an_object_or_a_dict(tmp_path: Path) -> None:
    config = GenerationConfig(num_beams=3)
    config.save_pretrained(tmp_path)
    for given in (str(tmp_path), tmp_path, config, {"num_beams": 3}):
        found = decoding_config(given)
        assert found.num_beams == 3 and found is not config
    assert decoding_config(None) is None
