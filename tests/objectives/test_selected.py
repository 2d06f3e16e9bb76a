"""The output layer at targets only: the same loss and gradient as the model's own, for each family that is verified."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tiny
import torch
import transformers as hf

from burnish.objectives import selected
from burnish.objectives.selected import selected_loss

LAYERS: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
ENCODER: dict[str, Any] = {"vocab_size": tiny.NUM_WORDS, **LAYERS}
DECODER: dict[str, Any] = {**ENCODER, "num_key_value_heads": 2, "pad_token_id": 0}
T5: dict[str, Any] = {
    **{"vocab_size": tiny.NUM_WORDS, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2},
    **{"pad_token_id": 0, "decoder_start_token_id": 0},
}
BART: dict[str, Any] = {
    **{"vocab_size": tiny.NUM_WORDS, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1},
    **{"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32},
    **{"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2},
    "forced_eos_token_id": 2,
}

FAMILIES: dict[str, Callable[[], Any]] = {
    "llama": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**DECODER)),
    "llama_tied": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**DECODER, tie_word_embeddings=True)),
    "mistral": lambda: hf.MistralForCausalLM(hf.MistralConfig(**DECODER)),
    "mixtral": lambda: hf.MixtralForCausalLM(hf.MixtralConfig(**DECODER, num_local_experts=2)),
    "qwen2": lambda: hf.Qwen2ForCausalLM(hf.Qwen2Config(**DECODER)),
    "qwen3": lambda: hf.Qwen3ForCausalLM(hf.Qwen3Config(**DECODER, head_dim=8)),
    "gemma2": lambda: hf.Gemma2ForCausalLM(hf.Gemma2Config(**DECODER, head_dim=8, final_logit_softcapping=3.0)),
    "gemma3": lambda: hf.Gemma3ForCausalLM(hf.Gemma3TextConfig(**DECODER, head_dim=8)),
    "phi3": lambda: hf.Phi3ForCausalLM(hf.Phi3Config(**DECODER, eos_token_id=2)),
    "granite": lambda: hf.GraniteForCausalLM(hf.GraniteConfig(**DECODER, logits_scaling=4.0)),
    "cohere": lambda: hf.CohereForCausalLM(hf.CohereConfig(**DECODER, logit_scale=0.25)),
    "olmo2": lambda: hf.Olmo2ForCausalLM(hf.Olmo2Config(**DECODER)),
    "gpt2": lambda: hf.GPT2LMHeadModel(
        hf.GPT2Config(vocab_size=tiny.NUM_WORDS, n_embd=16, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=2)
    ),
    "gpt_neox": lambda: hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(**ENCODER)),
    "opt": lambda: hf.OPTForCausalLM(
        hf.OPTConfig(
            vocab_size=tiny.NUM_WORDS,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            ffn_dim=32,
            word_embed_proj_dim=16,
        )
    ),
    "bert": lambda: hf.BertForMaskedLM(hf.BertConfig(**ENCODER)),
    "roberta": lambda: hf.RobertaForMaskedLM(hf.RobertaConfig(**ENCODER)),
    "distilbert": lambda: hf.DistilBertForMaskedLM(
        hf.DistilBertConfig(vocab_size=tiny.NUM_WORDS, dim=16, n_layers=1, n_heads=2, hidden_dim=32)
    ),
    "electra": lambda: hf.ElectraForMaskedLM(hf.ElectraConfig(**ENCODER, embedding_size=16)),
    "deberta_v2": lambda: hf.DebertaV2ForMaskedLM(hf.DebertaV2Config(**ENCODER)),
    "albert": lambda: hf.AlbertForMaskedLM(hf.AlbertConfig(**ENCODER, embedding_size=16)),
    "modernbert": lambda: hf.ModernBertForMaskedLM(
        hf.ModernBertConfig(**ENCODER, pad_token_id=0, cls_token_id=2, sep_token_id=3, bos_token_id=2, eos_token_id=3)
    ),
    "t5": lambda: hf.T5ForConditionalGeneration(hf.T5Config(**T5)),
    "mt5": lambda: hf.MT5ForConditionalGeneration(hf.MT5Config(**T5)),
    "bart": lambda: hf.BartForConditionalGeneration(hf.BartConfig(**BART)),
}
"""Verified families. A model that is not among them is tried out by the run itself."""

NEWER_CONFIGS = ("modernbert", "olmo2")
"""Older releases of transformers refuse their configs."""


def batch() -> dict[str, torch.Tensor]:
    """Three rows of 9, 5 and 3 tokens; the first has no target in its first four."""
    torch.manual_seed(1)
    ids = torch.randint(5, tiny.NUM_WORDS, (3, 9))
    mask = torch.tensor([[1] * n + [0] * (9 - n) for n in (9, 5, 3)])
    labels = torch.where(mask == 1, ids, torch.tensor(-100))
    labels[0, :4] = -100
    return {"input_ids": ids * mask, "attention_mask": mask, "labels": labels}


def gradients(model: Any, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("elements", [1 << 24, 3 * tiny.NUM_WORDS], ids=["one_chunk", "three_targets_a_chunk"])
@pytest.mark.parametrize(
    "family", [pytest.param(one, marks=[pytest.mark.newest] if one in NEWER_CONFIGS else []) for one in FAMILIES]
)
def test_loss_and_gradient_are_those_of_the_model(family: str, elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selected, "CHUNK_ELEMENTS", elements)
    torch.manual_seed(0)
    model = FAMILIES[family]().eval()
    objective = selected_loss(model, type(model).__name__.endswith(("ForCausalLM", "LMHeadModel")))
    assert objective is not None
    own, ours = model(**batch()).loss, objective(model, batch())
    assert ours.item() == pytest.approx(own.item(), rel=1e-5)
    expected, found = gradients(model, own), gradients(model, ours)
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-6)


def test_the_whole_table_of_logits_is_never_made() -> None:
    model = tiny.llama().eval()
    shapes: list[tuple[int, ...]] = []
    model.lm_head.register_forward_hook(lambda module, args, output: shapes.append(tuple(output.shape)))
    objective = selected_loss(model, shifts_labels=True)
    assert objective is not None
    inputs = batch()
    with torch.no_grad():
        objective(model, inputs)
    targets = int((inputs["labels"][:, 1:] != -100).sum())
    assert sum(shape[0] for shape in shapes if len(shape) == 2) == targets
    assert [shape for shape in shapes if len(shape) == 3] == [(3, 1, tiny.NUM_WORDS)]


def test_smoothed_labels() -> None:
    model = tiny.llama().eval()
    objective = selected_loss(model, shifts_labels=True, label_smoothing=0.1)
    assert objective is not None
    inputs = batch()
    logits = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits[:, :-1].flatten(0, 1)
    expected = torch.nn.functional.cross_entropy(logits, inputs["labels"][:, 1:].flatten(), label_smoothing=0.1)
    assert objective(model, inputs).item() == pytest.approx(expected.item(), rel=1e-5)


def test_other_models_have_none() -> None:
    assert selected_loss(tiny.bert("SequenceClassification"), shifts_labels=False) is None
    assert selected_loss(torch.nn.Linear(2, 2), shifts_labels=False) is None


def test_a_number_of_targets_that_the_host_knows() -> None:
    """The same loss and gradient; a wrong number is not passed over in silence."""
    model = tiny.llama()
    objective = selected_loss(model, shifts_labels=True)
    assert objective is not None
    ids = torch.tensor([tiny.words(7, 1), tiny.words(7, 2)])
    labels = ids.masked_fill(ids % 3 == 0, -100)
    inputs = {"input_ids": ids, "labels": labels}
    number = int((labels[:, 1:] != -100).sum())
    found = []
    for told in (None, number):
        loss = objective(model, inputs, told)
        found.append((loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))))
    assert 0 < number < 12 and all(map(torch.equal, *found))
    assert objective(model, inputs, number - 1).isnan() and objective(model, inputs, number + 1).isnan()


def test_an_evaluation_computes_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the weights of the output layer need one."""
    hidden, head = torch.randn(6, 8), torch.nn.Linear(8, 20)
    targets = torch.arange(6)
    loss = selected.summed_cross_entropy(hidden, targets, head, head)
    monkeypatch.setattr(torch.autograd, "grad", lambda *_, **__: pytest.fail("a gradient was computed"))
    with torch.no_grad():
        assert selected.summed_cross_entropy(hidden, targets, head, head).item() == pytest.approx(loss.item())
