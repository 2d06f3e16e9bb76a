"""Named terms beside a loss: logged as the loss is, the same for every split into micro-batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import transformers
from torch.nn import functional
from trainer import runs

import burnish

SPLITS = {"8x1": (8, 1), "4x2": (4, 2), "2x4": (2, 4), "1x8": (1, 8), "4x1": (4, 1)}


def parts_of(outputs: Any, labels: Any) -> dict[str, torch.Tensor]:
    """Terms that are means over rows."""
    entropy = -(outputs.logits.softmax(-1) * outputs.logits.log_softmax(-1)).sum(-1).mean()
    ce = functional.cross_entropy(outputs.logits, labels)
    return {"loss": ce + 0.1 * entropy, "ce": ce, "entropy": entropy}


def summed(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
    """A loss and a term that are sums over the number it is told, and one that is a mean."""
    entropy = -(outputs.logits.softmax(-1) * outputs.logits.log_softmax(-1)).sum(-1).mean()
    ce = functional.cross_entropy(outputs.logits, labels, reduction="sum") / num_items_in_batch
    return ce, {"ce": ce, "entropy": entropy.detach()}


class OwnDict(burnish.Trainer):
    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **more: Any) -> Any:
        outputs = model(**{name: value for name, value in inputs.items() if name != "labels"})
        found = parts_of(outputs, inputs["labels"])
        return (found, outputs) if return_outputs else found


class OwnTuple(burnish.Trainer):
    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **more: Any) -> Any:
        outputs = model(**{name: value for name, value in inputs.items() if name != "labels"})
        found = parts_of(outputs, inputs["labels"])
        terms = {name: found[name] for name in ("ce", "entropy")}
        return (found["loss"], outputs, terms) if return_outputs else (found["loss"], terms)


class WithTerms(torch.nn.Module):
    """A model that returns terms beside its loss, one of them in `loss_dict`."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = runs.classifier()
        self.config = self.inner.config

    def forward(self, input_ids: Any, attention_mask: Any = None, labels: Any = None) -> Any:
        outputs = self.inner(input_ids=input_ids, attention_mask=attention_mask)
        found = parts_of(outputs, labels)
        return {"loss": found["loss"], "logits": outputs.logits, "ce": found["ce"],
                "loss_dict": {"entropy": found["entropy"]}}  # fmt: skip


def terms_of(folder: Path, cls: Any = burnish.Trainer, split: str = "4x2", **parts: Any) -> dict[str, Any]:
    batch, accumulation = SPLITS[split]
    settings = {"per_device_train_batch_size": batch, "gradient_accumulation_steps": accumulation, "logging_steps": 2,
                "num_train_epochs": 1, "per_device_eval_batch_size": batch}  # fmt: skip
    given = {"train_dataset": tiny.class_rows(37), "eval_dataset": tiny.class_rows(13), **parts}
    run = runs.trainer(folder, cls, given, **settings)
    run.train()
    found = {key: list(runs.logged(run, key).values()) for key in ("loss", "ce", "entropy")}
    metrics = run.evaluate()
    return found | {key: metrics[key] for key in ("eval_loss", "eval_ce", "eval_entropy")}


def check(found: dict[str, Any]) -> None:
    """That terms add up to the loss, in training and in evaluation."""
    assert len(found["ce"]) == len(found["entropy"]) == len(found["loss"]) == 4
    for ce, entropy, loss in zip(found["ce"], found["entropy"], found["loss"], strict=True):
        assert ce + 0.1 * entropy == pytest.approx(loss, abs=1e-6)
    assert found["eval_ce"] + 0.1 * found["eval_entropy"] == pytest.approx(found["eval_loss"], abs=1e-6)


FORMS: dict[str, tuple[Any, dict[str, Any]]] = {
    "compute_loss, a dict": (OwnDict, {}),
    "compute_loss, a tuple": (OwnTuple, {}),
    "compute_loss_func": (burnish.Trainer, {"compute_loss_func": parts_of}),
    "model": (burnish.Trainer, {"model_init": WithTerms}),
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_logged(form: str, tmp_path: Path) -> None:
    cls, parts = FORMS[form]
    check(terms_of(tmp_path, cls, **parts))


@pytest.mark.parametrize("kind", ["means", "sums", "model"])
def test_same_for_every_split(kind: str, tmp_path: Path) -> None:
    parts = {"means": {"compute_loss_func": parts_of}, "sums": {"compute_loss_func": summed},
             "model": {"model_init": WithTerms}}[kind]  # fmt: skip
    first, *others = [terms_of(tmp_path, split=split, **parts) for split in ("8x1", "4x2", "2x4", "1x8")]
    for other in others:
        for key, value in first.items():
            assert other[key] == pytest.approx(value, abs=2e-6), key


def test_experts_of_a_language_model(tmp_path: Path) -> None:
    """The balance of experts is part of the loss, so that the output layer alone does not give it."""
    torch.manual_seed(0)
    config = transformers.MixtralConfig(
        vocab_size=tiny.NUM_WORDS, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, num_local_experts=2, num_experts_per_tok=1, output_router_logits=True,
        router_aux_loss_coef=0.5,
    )  # fmt: skip
    rows = tiny.language_rows(8)
    parts = {"model": transformers.MixtralForCausalLM(config), "train_dataset": rows, "eval_dataset": rows,
             "data_collator": transformers.DataCollatorForTokenClassification(tiny.tokenizer())}  # fmt: skip
    run = runs.trainer(tmp_path, parts=parts, max_steps=1)
    run.train()
    assert runs.logged(run, "aux_loss")[1] > 0 and run.evaluate()["eval_aux_loss"] > 0


def test_terms_since_the_last_log_outlive_a_restart(tmp_path: Path) -> None:
    def trained(folder: Path, steps: int, resume: Any = None) -> Any:
        parts = {"compute_loss_func": parts_of}
        run = runs.trainer(folder, parts=parts, max_steps=steps, logging_steps=4, save_strategy="steps", save_steps=2)
        run.train(resume_from_checkpoint=resume)
        return runs.logged(run, "ce")[4]

    whole = trained(tmp_path / "whole", 4)
    again = trained(tmp_path / "again", 4, str(tmp_path / "whole" / "checkpoint-2"))
    assert again == pytest.approx(whole, abs=1e-7)


def test_a_term_decides_which_model_is_best(tmp_path: Path) -> None:
    settings = {"eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps", "save_steps": 1, "max_steps": 2,
                "load_best_model_at_end": True, "metric_for_best_model": "ce", "greater_is_better": False}  # fmt: skip
    parts = {"compute_loss_func": parts_of, "eval_dataset": tiny.class_rows(6)}
    run = runs.trainer(tmp_path, parts=parts, **settings)
    run.train()
    assert run.state.best_metric == pytest.approx(min(runs.logged(run, "eval_ce").values()))


def test_a_name_that_a_log_has_is_refused(tmp_path: Path) -> None:
    def named(outputs: Any, labels: Any) -> dict[str, torch.Tensor]:
        loss = functional.cross_entropy(outputs.logits, labels)
        return {"loss": loss, "grad_norm": loss}

    with pytest.raises(ValueError, match="'grad_norm'"):
        runs.trainer(tmp_path, parts={"compute_loss_func": named}).train()
