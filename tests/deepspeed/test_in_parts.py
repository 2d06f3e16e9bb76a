"""Models that no process holds whole: loaded in parts, trained, evaluated, saved, gone on with, and left in parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import peft
import pytest
import tiny
import torch
import transformers
from distributed.forked import in_processes, values
from safetensors.torch import load_file
from trainer import runs
from zero_runs import CPU, KINDS, LOADED_BY, stage, trained

import burnish
from burnish.core import zero_parts
from burnish.core.errors import SettingError
from burnish.models.loading import load_model

TOLERANCE = 1e-6


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = {kind: tmp_path_factory.mktemp("models") / kind.replace(" ", "-") for kind in KINDS}
    for kind, folder in folders.items():
        KINDS[kind][0]().save_pretrained(folder)
    return folders


def loaded(kind: str, folder: Path) -> dict[str, torch.Tensor]:
    return runs.weights(getattr(transformers, LOADED_BY[kind]).from_pretrained(folder))


WAYS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": (stage(3), {}),
    "small weights kept whole": ({"zero_optimization": {"stage": 3}}, {}),
    "on the host": (stage(3, offload_optimizer=CPU, offload_param=CPU), {}),
    "accumulation, few tokens": (stage(3), {"gradient_accumulation_steps": 2, "token_budget": 24}),
}


def in_all_ways(folder: Path, kind: str, source: Path) -> dict[str, Any]:
    return {name: trained(folder / name, 2, config, kind, source=source, **more)
            for name, (config, more) in WAYS.items()}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_in_parts_takes_the_steps_of_a_whole_one(kind: str, sources: dict[str, Path], tmp_path: Path) -> None:
    alone = trained(tmp_path / "alone", 1, None, kind, source=sources[kind])
    both = values(in_processes(2, tmp_path, in_all_ways, tmp_path, kind, sources[kind]))
    for name, found in both[0].items():
        assert found["engine"] == "DeepSpeedEngine", name
        assert found["traces"], "it is still in parts"
        for number in ("loss", "grad_norm"):
            assert found[number] == pytest.approx(alone[number], rel=2e-5), (name, number)
        assert found["eval_loss"] == pytest.approx(alone["eval_loss"], rel=2e-5), name
        assert both[1][name]["weights"] is None, "the first process alone has gathered them"
        assert runs.difference(found["weights"], alone["weights"]) < TOLERANCE, name
        assert runs.difference(loaded(kind, tmp_path / name / "final"), alone["weights"]) < TOLERANCE, name


@pytest.mark.parametrize("changes", [{}, {"bf16": True}], ids=["float32", "bf16"])
def test_a_resumed_run_ends_with_the_same_bits(
    changes: dict[str, Any], sources: dict[str, Path], tmp_path: Path
) -> None:
    def run(folder: Path, **more: Any) -> dict[str, Any]:
        given = (folder, 2, stage(3))
        return values(in_processes(2, folder, trained, *given, source=sources["tags"], **changes, **more))[0]

    straight = run(tmp_path / "straight")
    broken = run(tmp_path / "run", stop=2)
    assert runs.difference(loaded("tags", tmp_path / "run" / "checkpoint-2"), broken["weights"]) == 0.0
    found = run(tmp_path / "run", resume=True)
    assert found["step"] == straight["step"] == 4
    assert found["loss"] == straight["loss"]
    assert runs.difference(found["weights"], straight["weights"]) == 0.0
    assert {weight.dtype for weight in found["weights"].values()} == {torch.float32}


OTHERWISE = {
    "from DDP": (2, None, {}, 2, stage(3), {}),
    "from ZeRO 2 in bf16": (2, stage(2), {"bf16": True}, 2, stage(3), {"bf16": True}),
    "to one process": (2, stage(3), {}, 1, None, {}),
}


@pytest.mark.parametrize("way", OTHERWISE)
def test_going_on_otherwise(way: str, sources: dict[str, Path], tmp_path: Path) -> None:
    count, config, changes, then, other, more = OTHERWISE[way]
    from_source = {"source": sources["tags"]}
    straight = values(in_processes(count, tmp_path, trained, tmp_path / "straight", count, config, **changes,
                                   **from_source))[0]  # fmt: skip
    run = tmp_path / "run"
    values(in_processes(count, tmp_path, trained, run, count, config, stop=2, **changes, **from_source))
    found = values(in_processes(then, tmp_path, trained, run, then, other, resume=True, **more, **from_source))[0]
    assert found["step"] == 4
    assert found["loss"] == pytest.approx(straight["loss"], rel=1e-2 if changes else 2e-5)
    assert runs.difference(found["weights"], straight["weights"]) < (1e-4 if changes else 1e-6)


def evaluated_and_trained_again(folder: Path, source: Path | None, config: Any) -> dict[str, Any]:
    """One trainer from its first evaluation to a second training, and the best of its evaluations."""
    settings = {"eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps", "save_steps": 1}
    args = runs.arguments(
        folder, deepspeed=config, max_steps=2, load_best_model_at_end=True, learning_rate=1e-2, optim="adamw_torch",
        per_device_train_batch_size=4 if config else 8, **settings,
    )  # fmt: skip
    model = transformers.AutoModelForTokenClassification.from_pretrained(source)
    rows = KINDS["tags"][1]
    run = burnish.Trainer(model, args, train_dataset=rows(16), eval_dataset=rows(5), processing_class=tiny.tokenizer(),
                          data_collator=transformers.DataCollatorForTokenClassification(tiny.tokenizer()))  # fmt: skip
    found = {"before": run.evaluate()["eval_loss"]}
    run.train()
    found["best"] = run.evaluate()["eval_loss"]
    found["predicted"] = float(abs(run.predict(rows(5)).predictions).sum())
    run.train()
    found |= {f"step {step}": loss for step, loss in runs.logged(run, "loss").items()}
    run.save_model(str(folder / "saved"))
    return found


def test_one_trainer_after_another_work(sources: dict[str, Path], tmp_path: Path) -> None:
    given = (sources["tags"],)
    alone = evaluated_and_trained_again(tmp_path / "alone", *given, None)
    both = values(in_processes(2, tmp_path, evaluated_and_trained_again, tmp_path / "both", *given, stage(3)))
    for found in both:
        assert found == pytest.approx(alone, rel=1e-4)
    assert runs.difference(*(loaded("tags", tmp_path / name / "saved") for name in ("alone", "both"))) < 1e-4


def with_adapters(folder: Path, source: Path, config: Any, **changes: Any) -> dict[str, Any]:
    """Adapters that are made whole, on a model in parts."""
    settings = {"per_device_train_batch_size": 4 if config else 8, "max_steps": 2, "learning_rate": 1e-2, **changes}
    args = runs.arguments(folder, deepspeed=config, eval_strategy="steps", eval_steps=1, save_strategy="steps",
                          save_steps=1, load_best_model_at_end=True, optim="adamw_torch", **settings)  # fmt: skip
    model = transformers.AutoModelForCausalLM.from_pretrained(source)
    lora = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    run = burnish.Trainer(
        tiny.seeded(lambda: peft.get_peft_model(model, lora)),
        args,
        train_dataset=tiny.language_rows(16),
        eval_dataset=tiny.language_rows(5),
        processing_class=tiny.tokenizer(),
        data_collator=transformers.DataCollatorForTokenClassification(tiny.tokenizer()),
    )
    run.train(resume_from_checkpoint=folder / "checkpoint-1" if changes else None)
    run.save_model(str(folder / "saved"))
    return {"eval_loss": run.evaluate()["eval_loss"], **{str(n): x for n, x in runs.logged(run, "loss").items()}}


def test_adapters_of_a_model_in_parts(sources: dict[str, Path], tmp_path: Path) -> None:
    given = (sources["causal lm"],)
    alone = with_adapters(tmp_path / "alone", *given, None)
    both = values(in_processes(2, tmp_path, with_adapters, tmp_path / "both", *given, stage(3)))
    assert both[0] == both[1] == pytest.approx(alone, rel=1e-5)
    again = values(in_processes(2, tmp_path, with_adapters, tmp_path / "both", *given, stage(3), save_total_limit=5))
    assert again[0] == both[0], "gone on with from the first step"
    one, other = (load_file(tmp_path / name / "saved" / "adapter_model.safetensors") for name in ("alone", "both"))
    assert runs.difference(one, other) < 1e-5


def others(folder: Path, source: Path) -> dict[str, Any]:
    """What else comes of arguments with ZeRO-3: new weights, and trainers that do not ask for it."""
    args = runs.arguments(folder, deepspeed=stage(3))
    config = transformers.AutoConfig.from_pretrained(source)
    torch.manual_seed(0)
    drawn = transformers.AutoModelForCausalLM.from_config(config)
    built = transformers.LlamaForCausalLM(config)
    found: dict[str, Any] = {
        "drawn": {name: zero_parts.whole(weight) for name, weight in drawn.named_parameters()},
        "built": zero_parts.lies_in_parts(built),
    }
    with pytest.raises(SettingError) as error:
        burnish.Trainer(drawn, runs.arguments(folder), train_dataset=tiny.language_rows(2))
    found["words"] = str(error.value)
    less = runs.arguments(folder, deepspeed=stage(2))
    found["later"] = zero_parts.lies_in_parts(transformers.AutoModelForCausalLM.from_pretrained(source))
    del args, less
    return found


def with_another_head(folder: Path, source: Path) -> str:
    args = runs.arguments(folder, deepspeed=stage(3))
    try:
        load_model(LOADED_BY["tags"], str(source), num_labels=5, ignore_mismatched_sizes=True)
    except SettingError as error:
        return str(error)
    return f"no error with {args.deepspeed}"


def test_a_head_of_another_size_is_refused(sources: dict[str, Path], tmp_path: Path) -> None:
    words = values(in_processes(2, tmp_path, with_another_head, tmp_path, sources["tags"]))[0]
    assert "classifier.weight" in words and "stage 2" in words


def test_new_weights_and_other_trainers(sources: dict[str, Path], tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.AutoConfig.from_pretrained(sources["causal lm"])
    whole = transformers.AutoModelForCausalLM.from_config(config)
    for found in values(in_processes(2, tmp_path, others, tmp_path, sources["causal lm"])):
        for name, weight in whole.named_parameters():
            drawn = found["drawn"][name]
            assert float(drawn.std()) == pytest.approx(float(weight.detach().std()), abs=5e-3), name
            assert float(drawn.mean()) == pytest.approx(float(weight.detach().mean()), abs=5e-3), name
        assert not found["built"], "a class that is called builds a whole model"
        assert not found["later"], "the latest arguments decide"
        assert "was loaded in parts" in found["words"]
