"""What a step without numbers finds, against what can be counted by hand."""

from __future__ import annotations

import tiny
import transformers

from burnish.planning.activations import DEPTHS, FORWARD, LATER, LOSS, activations_of
from burnish.planning.live import LiveBytes
from burnish.planning.scenario import Scenario

CAUSAL, CLASSES = "AutoModelForCausalLM", "AutoModelForSequenceClassification"
HIDDEN, INNER, HEADS, LENGTH, ROWS = 64, 128, 4, 32, 8


def llama(layers: int = 6) -> transformers.LlamaConfig:
    return transformers.LlamaConfig(
        vocab_size=512, hidden_size=HIDDEN, num_hidden_layers=layers, num_attention_heads=HEADS,
        num_key_value_heads=2, intermediate_size=INNER, max_position_embeddings=LENGTH,
    )  # fmt: skip


def scenario(**changes) -> Scenario:
    return Scenario(**{"device": "cpu", "length": LENGTH, "rows": ROWS, "micro_batches": 1, **changes})


def per_layer(**changes) -> float:
    six, five = (activations_of(CAUSAL, llama(n), scenario(**changes)).saved for n in (6, 5))
    return six - five


def test_a_llama_layer_keeps_what_its_operations_save() -> None:
    # numbers a token: two norms keep input, its inverse length (1) and the normed input; the products of norm and gain
    # enter the linear layers; queries, keys and values repeated for each query head, the output of attention with a
    # number a head, the mask of rows of unequal length; gate, its activation, up and their product
    norms = 2 * (3 * HIDDEN + 1)
    attention = 4 * HIDDEN + HEADS + LENGTH
    gated = 4 * INNER
    assert per_layer() == 4 * ROWS * LENGTH * (norms + attention + gated)


def test_with_checkpointing_a_layer_keeps_its_input() -> None:
    assert per_layer(checkpointing=True) == 4 * ROWS * LENGTH * HIDDEN


def test_a_stack_is_extrapolated_to_what_it_is(monkeypatch) -> None:
    short = activations_of(CAUSAL, llama(7), scenario(micro_batches=2))
    monkeypatch.setitem(DEPTHS, "cpu", (7, 7))
    whole = activations_of(CAUSAL, llama(7), scenario(micro_batches=2))
    assert round(short.saved) == whole.saved
    assert {name: round(peak.bytes) for name, peak in short.peaks.items()} == {
        name: peak.bytes for name, peak in whole.peaks.items()
    }


def test_attention_with_dropout_is_quadratic_on_the_cpu_only() -> None:
    config = tiny.bert_config(attention_probs_dropout_prob=0.1, max_position_embeddings=256, num_attention_heads=8)

    def growth(device: str) -> float:
        long, short = (
            activations_of(CLASSES, config, scenario(device=device, length=length, rows=256 // length)).saved
            for length in (256, 64)
        )
        return long / short

    assert growth("cpu") > 3
    assert growth("cuda") < 1.5  # the mask, which all heads share


def test_the_loss_takes_more_when_logits_are_whole() -> None:
    def loss(at_targets: bool) -> float:
        config = llama()
        config.vocab_size = 1 << 17  # 128 positions to a chunk
        return activations_of(CAUSAL, config, scenario(at_targets=at_targets)).peaks[LOSS].without_gradients

    assert loss(False) > 1.5 * loss(True)


def test_later_micro_batches_find_all_gradients_there() -> None:
    peaks = activations_of(CAUSAL, llama(), scenario(micro_batches=3)).peaks
    trained = sum(p.numel() for p in transformers.LlamaForCausalLM(llama()).parameters()) * 4
    assert peaks[LATER + FORWARD].gradients == trained
    assert peaks[FORWARD].gradients == 0


def test_weights_and_views_of_them_are_not_counted() -> None:
    import torch

    weight = torch.nn.Parameter(torch.zeros(10, 10))
    live = LiveBytes(1, [weight])
    with live:
        view = weight.t()
        made = view + 1
        assert live.now == 400
        del made
    assert live.now == 0


def test_adapters_keep_less_than_full_training() -> None:
    assert per_layer(lora_rank=4) < per_layer()


def test_every_task_and_kind_of_model_can_be_planned() -> None:
    t5 = transformers.T5Config(d_model=32, d_kv=16, d_ff=64, num_layers=4, num_heads=2, vocab_size=96)
    t5.decoder_start_token_id = t5.pad_token_id = 0
    gpt2 = transformers.GPT2Config(n_embd=32, n_layer=4, n_head=2, vocab_size=96)
    for name, config in (
        ("AutoModelForSeq2SeqLM", t5),
        (CAUSAL, gpt2),
        ("AutoModelForMaskedLM", tiny.bert_config()),
        ("AutoModelForTokenClassification", tiny.bert_config()),
    ):
        for rank in (None, 4):
            found = activations_of(name, config, scenario(length=16, rows=2, share_of_targets=0.5, lora_rank=rank))
            assert max(peak.bytes for peak in found.peaks.values()) > 0, name


def test_an_update_in_the_backward_pass_holds_one_gradient_at_a_time() -> None:
    sizes = [weight.numel() * 4 for weight in transformers.LlamaForCausalLM(llama()).parameters()]
    ordinary, early = (
        activations_of(CAUSAL, llama(), scenario(in_backward=each, rows=1, length=4)).peaks for each in (False, True)
    )
    assert max(peak.gradients for peak in early.values()) <= max(sizes)
    last = "end of backward"
    assert ordinary[last].gradients - early[last].gradients > 0.5 * sum(sizes)
    # those of the first micro-batch stay until the last
    kept = activations_of(CAUSAL, llama(), scenario(in_backward=True, micro_batches=2)).peaks
    assert kept[LATER + FORWARD].gradients == sum(sizes)
