"""Texts written by processes that hold parts of the weights (ZeRO-3): those of one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import peft
import pytest
import tiny
import transformers
from distributed.forked import in_processes, values
from trainer import runs
from zero_runs import stage

import burnish


def prompts(count: int) -> list[dict[str, Any]]:
    return [{**row, "labels": [-100] * 3 + row["input_ids"][3:]} for row in tiny.text_rows(count)]


def adapted(model: Any) -> Any:
    return peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=["q_proj"], task_type="CAUSAL_LM"))


WRITERS: dict[str, tuple[Any, str, Any, Any]] = {
    "decoder": (tiny.llama, "AutoModelForCausalLM", None, prompts),
    "adapters": (tiny.llama, "AutoModelForCausalLM", adapted, prompts),
    "encoder and decoder": (tiny.t5, "AutoModelForSeq2SeqLM", None, tiny.pair_rows),
}
COUNT = 7
"""Rows, unequally many for each of two processes, with texts of unequal length."""


def trainer_for(folder: Path, kind: str, source: Path | None, **settings: Any) -> burnish.Seq2SeqTrainer:
    """A trainer of a model that is loaded from `source` (with ZeRO-3 in parts), or built whole."""
    build, loaded_by, wrap, rows = WRITERS[kind]
    given = {"predict_with_generate": True, "generation_max_length": 12, "per_device_eval_batch_size": 2, **settings}
    args = runs.arguments(folder, burnish.Seq2SeqTrainingArguments, **given)
    model = build() if source is None else getattr(transformers, loaded_by).from_pretrained(source)
    collates = transformers.DataCollatorForSeq2Seq if kind.startswith("encoder") else None
    collates = collates or transformers.DataCollatorForTokenClassification
    return burnish.Seq2SeqTrainer(
        model=tiny.seeded(lambda: wrap(model)) if wrap else model,
        args=args,
        data_collator=collates(tiny.tokenizer()),
        processing_class=tiny.tokenizer(),
        train_dataset=rows(8),
        eval_dataset=rows(COUNT),
    )


def in_parts(folder: Path, kind: str, source: Path, **settings: Any) -> Any:
    """Before any training, by each way of decoding."""
    found = []
    for beams in (1, 2):
        run = trainer_for(folder, kind, source, generation_num_beams=beams, **settings)
        prediction = run.predict(WRITERS[kind][3](COUNT))
        found.append((prediction.predictions.tolist(), run.evaluate()["eval_gen_len"]))
    return found


@pytest.mark.parametrize("kind", WRITERS)
def test_texts_of_a_model_in_parts_are_those_of_one_process(kind: str, tmp_path: Path) -> None:
    WRITERS[kind][0]().save_pretrained(tmp_path / "model")
    alone = in_parts(tmp_path / "alone", kind, tmp_path / "model")
    both = values(in_processes(2, tmp_path, in_parts, tmp_path / "both", kind, tmp_path / "model", deepspeed=stage(3)))
    for found in both:
        assert found == alone


class Keeps(burnish.TrainerCallback):
    """The texts that each evaluation writes."""

    def __init__(self) -> None:
        self.texts: list[Any] = []

    def on_generate(self, args: Any, state: Any, control: Any, texts: Any = None, **kwargs: Any) -> None:
        self.texts.append(list(map(tuple, texts)))


def while_it_trains(folder: Path, kind: str, processes: int, **settings: Any) -> Any:
    keeps = Keeps()
    step = {"per_device_train_batch_size": 4 // processes, "generation_texts_shown": COUNT, "learning_rate": 1e-3}
    run = trainer_for(folder, kind, None, eval_strategy="steps", eval_steps=1, max_steps=2, **step, **settings)
    run.add_callback(keeps)
    run.train()
    return keeps.texts, runs.logged(run, "loss")


@pytest.mark.parametrize("kind", ["decoder", "encoder and decoder"])
def test_texts_written_in_the_middle_of_a_run(kind: str, tmp_path: Path) -> None:
    """Of a model that came whole, which DeepSpeed has divided for the run."""
    alone = while_it_trains(tmp_path / "alone", kind, 1)
    both = values(in_processes(2, tmp_path, while_it_trains, tmp_path / "both", kind, 2, deepspeed=stage(3)))
    assert both[0][0] == alone[0] and len(alone[0]) == 2
    assert both[0][1] == pytest.approx(alone[1], rel=2e-5)
