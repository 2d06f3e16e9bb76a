"""However many texts are written together, each is what the model writes for it alone."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import tiny
import torch
import transformers
from generation import written

from burnish.core.errors import DataError, SettingError
from burnish.generation import writer as module
from burnish.generation.fits import Fit
from burnish.models.contract import facts_of

GREEDY = {"max_new_tokens": 9, "do_sample": False}


def gpt2() -> Any:
    shape = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64, "vocab_size": tiny.NUM_WORDS}
    tokens = {"bos_token_id": tiny.CLS, "eos_token_id": tiny.SEP, "pad_token_id": tiny.PAD}
    return tiny.seeded(lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape, **tokens)))


def bart() -> Any:
    shape = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 2, "max_position_embeddings": 64}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
    tokens = {"pad_token_id": tiny.PAD, "bos_token_id": tiny.CLS, "eos_token_id": tiny.SEP}
    more = {
        "decoder_start_token_id": tiny.SEP,
        "forced_eos_token_id": None,
        "vocab_size": tiny.NUM_WORDS,
        "init_std": 0.3,
    }
    return tiny.seeded(
        lambda: transformers.BartForConditionalGeneration(transformers.BartConfig(**shape, **heads, **tokens, **more))
    )


def sliding() -> Any:
    """A layer that looks back 6 tokens beside one that looks back at all of them."""
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
    window = {"sliding_window": 6, "layer_types": ["sliding_attention", "full_attention"], "use_sliding_window": True}
    size = {"intermediate_size": 64, "vocab_size": tiny.NUM_WORDS, "eos_token_id": tiny.SEP, "bos_token_id": tiny.CLS}
    return tiny.seeded(lambda: transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**shape, **window, **size)))


def eager() -> Any:
    model = tiny.llama()
    model.set_attn_implementation("eager")
    return model


MODELS = {"llama": tiny.llama, "eager": eager, "gpt2": gpt2, "t5": tiny.t5, "bart": bart}


@pytest.mark.parametrize("rows", [1, 3, 64])
@pytest.mark.parametrize("kind", MODELS)
def test_texts_are_those_of_each_prompt_alone(kind: str, rows: int) -> None:
    model = written.restless(MODELS[kind]())
    prompts = written.prompts(11)
    settings = {**GREEDY, "eos_token_id": [tiny.SEP, *range(20, 35)]}
    expected = written.one_by_one(model, prompts, **settings)
    writer = written.Bench(model, rows)
    assert writer.write(prompts, range(11), settings) == expected
    assert writer.writer.fit, "the plain way was taken, which shows nothing"
    assert len({tuple(text) for text in expected}) > 5 and len(set(map(len, expected))) > 1


def test_a_model_whose_layers_look_back_a_few_tokens_is_left_to_generate(monkeypatch: pytest.MonkeyPatch) -> None:
    model = written.restless(sliding())
    prompts = written.prompts(5, shortest=5)
    writer = written.Bench(model)
    assert writer.write(prompts, range(5), GREEDY) == written.one_by_one(model, prompts, **GREEDY)
    monkeypatch.setattr(module, "Continuous", None)  # and not by luck
    assert writer.write(prompts, range(5), GREEDY) == written.one_by_one(model, prompts, **GREEDY)


def test_a_model_that_computes_something_else_with_the_cache_is_left_to_generate() -> None:
    """Found out by the trial: this one takes no account of the positions that it is told."""
    model = written.restless(tiny.llama())

    class Deaf(type(model)):  # type: ignore[misc]
        def forward(self, *args: Any, position_ids: Any = None, **kwargs: Any) -> Any:
            return super().forward(*args, **kwargs)

    Deaf.forward.__signature__ = inspect.signature(type(model).forward)  # type: ignore[attr-defined]

    model.__class__ = Deaf
    writer = written.Bench(model)
    prompts = written.prompts(4)
    assert writer.write(prompts, range(4), GREEDY) == written.one_by_one(model, prompts, **GREEDY)
    assert writer.writer.fit is False


@pytest.mark.parametrize(
    "settings",
    [
        {"num_beams": 3},
        {"repetition_penalty": 1.7},
        {"no_repeat_ngram_size": 2},
        {"min_new_tokens": 7},
        {"min_length": 12},
        {"num_beams": 2, "length_penalty": 2.0},
        {"eos_token_id": [tiny.SEP, 40, 41]},
        {"generation_config": transformers.GenerationConfig(num_beams=2, max_new_tokens=5)},
        {"generation_config": transformers.GenerationConfig(do_sample=False, max_length=21)},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["llama", "t5"])
def test_every_setting_is_followed(kind: str, settings: dict[str, Any]) -> None:
    model = written.restless(MODELS[kind]())
    prompts = written.prompts(6)
    settings = settings if "generation_config" in settings else {**GREEDY, **settings}
    found = written.Bench(model).write(prompts, range(6), settings)
    assert found == written.one_by_one(model, prompts, **settings)


@pytest.mark.parametrize("kind", ["llama", "t5"])
@pytest.mark.parametrize("further", [{}, {"typical_p": 0.9}, {"num_beams": 2}], ids=str)
def test_what_is_drawn_depends_on_seed_and_row_alone(kind: str, further: dict[str, Any]) -> None:
    model = written.restless(MODELS[kind](), 1.0)
    prompts = written.prompts(6)
    drawn = {"max_new_tokens": 9, "do_sample": True, "temperature": 1.5, **further}
    torch.manual_seed(5)
    state = torch.get_rng_state()
    together = written.Bench(model, at_once=64, seed=1).write(prompts, range(6), drawn)
    assert torch.equal(torch.get_rng_state(), state)
    few = written.Bench(model, at_once=2, seed=1).write(prompts[::-1], list(range(6))[::-1], drawn)[::-1]
    assert few == together
    assert written.Bench(model, seed=2).write(prompts, range(6), drawn) != together
    assert written.Bench(model, seed=1).write(prompts, range(1, 7), drawn) != together


@pytest.mark.parametrize("kind", ["llama", "t5"])
def test_a_text_ends_at_a_stop_string(kind: str) -> None:
    model, tokenizer = written.restless(MODELS[kind]()), tiny.tokenizer()
    prompts = written.prompts(6)
    plain = written.Bench(model).write(prompts, range(6), GREEDY)
    stop = max(plain, key=len)[2:4]
    settings = {**GREEDY, "stop_strings": [tokenizer.decode(stop), "nowhere"]}
    found = written.Bench(model, tokenizer=tokenizer).write(prompts, range(6), settings)
    for text, whole in zip(found, plain, strict=True):
        ends = [i for i in range(2, len(whole) + 1) if whole[i - 2 : i] == stop]
        assert text == whole[: ends[0] if ends else None]
    assert found != plain
    with pytest.raises(SettingError, match="processing_class"):
        written.Bench(model).write(prompts, range(6), settings)


@pytest.mark.parametrize("tokens", [1, 40, 100])
def test_a_small_cache_changes_nothing(tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds fewer texts, and is made larger and smaller as prompts get shorter."""
    model = written.restless(tiny.llama())
    prompts = written.prompts(12)
    fit = module.slots_fit(model.eval(), facts_of(model).accepts, prompts)
    assert isinstance(fit, Fit)
    monkeypatch.setattr(module, "CACHE_BYTES", tokens * fit.bytes_per_token)
    found = written.Bench(model, at_once=8).write(prompts, range(12), GREEDY)
    assert found == written.one_by_one(model, prompts, **GREEDY)


def test_no_prompt_no_text() -> None:
    assert written.Bench(tiny.llama()).write([], [], GREEDY) == []
    assert written.Bench(tiny.t5()).write([], [], GREEDY) == []


def test_a_prompt_without_room_is_named() -> None:
    with pytest.raises(DataError, match=r"Row 7.*17 tokens.*max_length=17.*max_new_tokens"):
        written.Bench(tiny.llama()).write([[9] * 17], [7], {"max_length": 17})
    with pytest.raises(DataError, match=r"Row 8.*64 positions"):
        written.Bench(gpt2()).write([[9] * 64], [8], GREEDY)


def test_positions_that_a_model_has_are_not_exceeded() -> None:
    assert len(written.Bench(gpt2()).write([[9] * 61], [0], {"max_new_tokens": 9, "min_new_tokens": 9})[0]) == 3


def test_the_model_stays_as_it_was() -> None:
    """In training, without a cache: both are otherwise while texts are written."""
    model = written.restless(tiny.llama(attention_dropout=0.5))
    model.config.use_cache = False
    model.gradient_checkpointing_enable()
    before = model.config.to_dict(), model.generation_config.to_dict()
    expected = written.one_by_one(model, written.prompts(4), **GREEDY)
    writer = written.Bench(model)
    model.train()
    for settings in (GREEDY, {**GREEDY, "num_beams": 1, "repetition_penalty": 1.0001}):
        assert writer.write(written.prompts(4), range(4), settings) == expected
    assert model.training and all(part.training for part in model.modules())
    assert (model.config.to_dict(), model.generation_config.to_dict()) == before
