"""What models say of themselves, held against what they compute."""

from __future__ import annotations

from typing import Any

import pytest
import tiny
import torch
import transformers
from torch import nn
from torch.nn import functional

from burnish.models.contract import ModelFacts, facts_of, forward_arguments, without_adapters

POSITIONS, LABELS = 40, 3
SHAPE = {"vocab_size": tiny.NUM_WORDS, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
ENCODER = {**SHAPE, "intermediate_size": 64, "max_position_embeddings": POSITIONS}
DECODER = {**ENCODER, "num_key_value_heads": 1, "pad_token_id": tiny.PAD}
GPT2 = {"vocab_size": tiny.NUM_WORDS, "n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": POSITIONS}
DISTIL = {"vocab_size": tiny.NUM_WORDS, "dim": 32, "n_layers": 1, "n_heads": 2, "hidden_dim": 64}
HALVES = {
    f"{half}_{name}": value for half in ("encoder", "decoder") for name, value in (("layers", 1), ("ffn_dim", 64))
}
HEADS = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
PAIR = {"vocab_size": tiny.NUM_WORDS, "d_model": 32, "max_position_embeddings": POSITIONS, **HALVES, **HEADS}
T5 = {"vocab_size": tiny.NUM_WORDS, "d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 1, "num_heads": 2}
START = {"decoder_start_token_id": tiny.PAD}
FAMILIES: dict[str, dict[str, Any]] = {
    "Bert": ENCODER,
    "Roberta": ENCODER,
    "Longformer": {**ENCODER, "attention_window": 4},
    "Electra": {**ENCODER, "embedding_size": 16},
    "DebertaV2": ENCODER,
    "DistilBert": {**DISTIL, "max_position_embeddings": POSITIONS},
    "GPT2": GPT2,
    "OPT": {**SHAPE, "ffn_dim": 64, "word_embed_proj_dim": 32, "max_position_embeddings": POSITIONS},
    "Bloom": {"vocab_size": tiny.NUM_WORDS, "hidden_size": 32, "n_layer": 1, "n_head": 2},
    "Llama": DECODER,
    "Qwen2": DECODER,
    "Gemma2": {**DECODER, "head_dim": 16},
    "Bart": PAIR,
    "Marian": {**PAIR, "pad_token_id": 95, "decoder_start_token_id": 95},
    "Pegasus": PAIR,
    "T5": {**T5, **START},
}


def build(family: str, head: str, **changes: Any) -> Any:
    config = getattr(transformers, f"{family}Config")(**{**FAMILIES[family], "num_labels": LABELS, **changes})
    return tiny.seeded(lambda: getattr(transformers, f"{family}{head}")(config)).eval()


# ---------------------------------------------------------------- labels


@pytest.mark.parametrize(
    ("family", "head", "names"),
    [
        ("Bert", "ForSequenceClassification", ("labels",)),
        ("Bert", "ForQuestionAnswering", ("start_positions", "end_positions")),
        ("Bert", "ForPreTraining", ("labels", "next_sentence_label")),
        ("Bert", "Model", ()),
        ("DistilBert", "ForTokenClassification", ("labels",)),
        ("Roberta", "ForMultipleChoice", ("labels",)),
        ("GPT2", "DoubleHeadsModel", ("labels", "mc_labels")),
        ("Llama", "ForQuestionAnswering", ("start_positions", "end_positions")),
        ("T5", "ForConditionalGeneration", ("labels",)),
        ("Bart", "ForQuestionAnswering", ("start_positions", "end_positions")),
    ],
)
def test_the_names_of_targets(family: str, head: str, names: tuple[str, ...]) -> None:
    facts = facts_of(build(family, head))
    assert facts.name == f"{family}{head}" and facts.label_names == names
    assert all(map(facts.takes, ("input_ids", "attention_mask", *names)))


@pytest.mark.parametrize(
    ("family", "head"),
    [
        ("Llama", "ForCausalLM"),
        ("GPT2", "LMHeadModel"),
        ("OPT", "ForCausalLM"),
        ("Bloom", "ForCausalLM"),
        ("Gemma2", "ForCausalLM"),
        ("Bert", "LMHeadModel"),
        ("Roberta", "ForCausalLM"),
        ("Bert", "ForMaskedLM"),
        ("Electra", "ForMaskedLM"),
        ("Bert", "ForTokenClassification"),
        ("Llama", "ForTokenClassification"),
        ("GPT2", "ForTokenClassification"),
        ("Bart", "ForConditionalGeneration"),
        ("Marian", "MTModel"),
        ("T5", "ForConditionalGeneration"),
        ("T5", "ForTokenClassification"),
    ],
)
def test_whether_labels_are_shifted_is_what_the_loss_does(family: str, head: str) -> None:
    model = build(family, head)
    ids = torch.tensor([tiny.words(8, 1), tiny.words(8, 2)])
    labels = ids.roll(3, 1) % LABELS
    with torch.no_grad():
        outputs = model(input_ids=ids, labels=labels)
    logits = outputs.logits
    if facts_of(model).shifts_labels:
        logits, labels = logits[:, :-1], labels[:, 1:]
    torch.testing.assert_close(outputs.loss, functional.cross_entropy(logits.flatten(0, 1), labels.flatten()))


# ---------------------------------------------------------------- sizes


@pytest.mark.parametrize("family", FAMILIES)
def test_the_longest_row_is_the_longest_that_can_be_computed(family: str) -> None:
    facts = facts_of(model := build(family, "Model"))

    def compute(length: int) -> Any:
        ids = torch.tensor([tiny.words(length, 0)])
        more = {"decoder_input_ids": ids[:, :2]} if facts.is_encoder_decoder else {}
        with torch.no_grad():
            return model(input_ids=ids, attention_mask=torch.ones_like(ids), **more)

    if facts.max_positions is None:
        compute(2 * POSITIONS)
        return
    assert POSITIONS - 2 <= facts.max_positions <= POSITIONS
    if family != "Longformer":  # it pads its rows to its window, beyond its own table
        compute(facts.max_positions)
    with pytest.raises((IndexError, RuntimeError, ValueError)):
        compute(facts.max_positions + 1)


@pytest.mark.parametrize("family", FAMILIES)
def test_vocabulary_padding_and_kind(family: str) -> None:
    model = build(family, "Model")
    facts = facts_of(model)
    assert facts.vocab_size == tiny.NUM_WORDS
    assert facts.pad_token_id == model.config.pad_token_id
    assert facts.is_encoder_decoder is (family in ("Bart", "Marian", "Pegasus", "T5"))
    assert facts.has_head is False and facts.label_names == () and facts.shifts_labels is False


@pytest.mark.parametrize("family", ["Bert", "Llama", "GPT2", "Bart", "T5"])
def test_a_head_for_classes(family: str) -> None:
    facts = facts_of(build(family, "ForSequenceClassification", problem_type="regression"))
    assert (facts.has_head, facts.num_labels, facts.problem_type) == (True, LABELS, "regression")
    assert facts.is_encoder_decoder is (family in ("Bart", "T5"))


def test_half_of_an_encoder_decoder_is_none() -> None:
    assert facts_of(build("Bart", "ForCausalLM")).is_encoder_decoder is False
    tagger = facts_of(build("T5", "ForTokenClassification"))
    assert tagger.is_encoder_decoder is False and not tagger.takes("decoder_input_ids")


def test_pictures_have_no_tokens() -> None:
    vit = transformers.ViTConfig(**{**SHAPE, "intermediate_size": 64, "image_size": 8, "patch_size": 4})
    facts = facts_of(transformers.ViTForImageClassification(vit))
    assert (facts.vocab_size, facts.max_positions, facts.rows_interact) == (None, None, False)
    resnet = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8], depths=[1], stage_names=["stem", "stage1"])
    assert facts_of(transformers.ResNetForImageClassification(resnet)).rows_interact is True


# ---------------------------------------------------------------- plain modules


class Plain(nn.Module):
    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: torch.Tensor, /, features: torch.Tensor, *, target_labels: Any = None) -> Any:
        return x


class TakesAnything(nn.Module):
    def forward(self, **inputs: Any) -> Any:
        return inputs


def test_a_plain_module_says_what_its_forward_says() -> None:
    facts = facts_of(Plain(nn.Linear(1, 1)))
    assert facts == ModelFacts(
        name="Plain",
        accepts=frozenset({"features", "target_labels"}),
        accepts_any=False,
        label_names=("target_labels",),
        is_encoder_decoder=False,
        shifts_labels=False,
        has_head=True,
        rows_interact=False,
        problem_type=None,
        num_labels=None,
        vocab_size=None,
        max_positions=None,
        max_target_positions=None,
        token_types=None,
        pad_token_id=None,
    )
    anything = facts_of(TakesAnything())
    assert anything.accepts_any and not anything.accepts and anything.label_names == ()
    assert forward_arguments(TakesAnything()) == ([], True)


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(2), nn.BatchNorm2d(2), nn.SyncBatchNorm(2)])
def test_batch_norm_makes_rows_interact(norm: nn.Module) -> None:
    assert facts_of(Plain(nn.Sequential(norm))).rows_interact
    assert not facts_of(Plain(nn.LayerNorm(2), nn.GroupNorm(1, 2))).rows_interact


def test_a_config_that_is_not_of_transformers() -> None:
    model = Plain()
    model.config = {"num_labels": 3}  # type: ignore[assignment]
    assert facts_of(model).num_labels is None


# ---------------------------------------------------------------- adapters


@pytest.mark.parametrize("kind", ["lora", "prompt", "ia3"])
def test_an_adapted_model_is_what_it_was(kind: str) -> None:
    peft = pytest.importorskip("peft")
    base = build("Llama", "ForCausalLM")
    plain = facts_of(base)
    config = {
        "lora": lambda: peft.LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM"),
        "prompt": lambda: peft.PromptTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM"),
        "ia3": lambda: peft.IA3Config(target_modules=["k_proj"], feedforward_modules=[], task_type="CAUSAL_LM"),
    }[kind]()
    adapted = peft.get_peft_model(base, config)
    assert facts_of(adapted) == plain and plain.shifts_labels
    assert without_adapters(adapted) is base and without_adapters(base) is base


def test_an_encoder_and_its_decoder_have_tables_of_their_own() -> None:
    shape = {"vocab_size": 96, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "num_mel_bins": 8}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 3, "decoder_start_token_id": 2}
    config = transformers.WhisperConfig(
        **shape, **heads, **tokens, max_source_positions=10, max_target_positions=20, suppress_tokens=None
    )
    facts = facts_of(transformers.WhisperForConditionalGeneration(config))
    assert (facts.max_positions, facts.max_target_positions) == (10, 20)
    assert facts_of(tiny.t5()).max_target_positions is None


def test_token_types() -> None:
    assert facts_of(tiny.bert("MaskedLM", type_vocab_size=3)).token_types == 3
    assert facts_of(tiny.llama()).token_types is None


def test_a_body_that_returns_a_loss_of_its_own() -> None:
    tower = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.CLIPConfig(
        text_config={**tower, "vocab_size": 96, "bos_token_id": 94, "eos_token_id": 95},
        vision_config={**tower, "image_size": 8, "patch_size": 4},
        projection_dim=8,
    )
    model = transformers.CLIPModel(config)
    facts = facts_of(model)
    assert facts.has_head and facts.label_names == ()
    inputs = {"input_ids": torch.tensor([[5, 95], [6, 95]]), "pixel_values": torch.rand(2, 3, 8, 8)}
    assert model(**inputs, return_loss=True).loss is not None
