"""The grid of runs that must all be the same run: engines × numbers of processes × divisions of a step × models.

    python tests/distributed/grid.py                      all that is installed; with DeepSpeed many minutes
    python tests/distributed/grid.py --engine DDP FSDP2 --kind "causal lm"

Prints for each engine and number of processes the largest differences from one process that computes each step at once,
and ends with 1 where they are above what is allowed.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import logging
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    os.environ.update(HF_HUB_OFFLINE="1", DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="")
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # the folder of the tests, as pytest has it

import safetensors.torch
import tiny
import torch
import transformers
from distributed import forked
from trainer import runs

import burnish

ROWS = 27
"""Three steps of 8 a pass, and one of 3: fewer rows than four processes."""
STEP = 8
EVALUATED = 11

KINDS: dict[str, tuple[Any, Any]] = {
    "classification": (lambda: tiny.bert("SequenceClassification"), tiny.class_rows),
    "token classification": (lambda: tiny.bert("TokenClassification", num_labels=3), tiny.tag_rows),
    "causal lm": (tiny.llama, tiny.language_rows),
    "seq2seq": (tiny.t5, tiny.pair_rows),
    "random masks": (lambda: tiny.bert("MaskedLM"), tiny.text_rows),
}
"""Models and their rows, all of unequal length."""

ADAMW = "clipped AdamW"
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "accumulation": {"gradient_accumulation_steps": 2},
    "few tokens": {"token_budget": 40},
    ADAMW: {"max_grad_norm": 0.05, "optim": "adamw_torch", "adam_epsilon": 1e-5, "learning_rate": 1e-3},
}
"""How a step is divided and taken. The first three are one run."""
BOTH = {"accumulation, few tokens": {"gradient_accumulation_steps": 2, "token_budget": 40}}


def zero(stage: int) -> dict[str, Any]:
    """At stage 3 every weight is divided, however small."""
    always = {"stage3_param_persistence_threshold": 0} if stage == 3 else {}
    return {"deepspeed": {"zero_optimization": {"stage": stage, **always}}}


ENGINES: dict[str, tuple[str, dict[str, Any], tuple[int, ...]]] = {
    "single": ("SingleEngine", {}, (1,)),
    "DDP": ("DDPEngine", {}, (2, 4)),
    "FSDP2": ("FSDPEngine", {"fsdp": True}, (2, 4)),
    **{f"ZeRO {stage}": ("DeepSpeedEngine", zero(stage), (1, 2, 4)) for stage in (1, 2, 3)},
}
"""The class that computes, the settings that ask for it, and on how many processes."""


def collator_for(kind: str) -> Any:
    if kind == "classification":
        return runs.collator()
    if kind == "random masks":
        return transformers.DataCollatorForLanguageModeling(tiny.tokenizer(), mlm_probability=0.3)
    if kind == "seq2seq":
        return transformers.DataCollatorForSeq2Seq(tiny.tokenizer())
    return transformers.DataCollatorForTokenClassification(tiny.tokenizer())


def two_passes(
    folder: Path,
    count: int,
    kind: str,
    way: dict[str, Any],
    model: Any = None,
    resume: Path | None = None,
    **parts: Any,
) -> burnish.Trainer:
    """A run that has ended."""
    build, rows = KINDS[kind]
    settings = {
        "num_train_epochs": 2,
        "per_device_train_batch_size": STEP // (count * way.get("gradient_accumulation_steps", 1)),
        "learning_rate": 0.05,
        "optim": "sgd",
        "max_grad_norm": 0.0,
        **way,
    }
    args, model = runs.arguments(folder, **settings), model or build()
    parts = {"train_dataset": rows(ROWS), "data_collator": collator_for(kind), **parts}
    run = burnish.Trainer(model=model, args=args, **parts)
    run.train(resume_from_checkpoint=None if resume is None else str(resume))
    return run


def told_by(run: Any) -> dict[str, Any]:
    """What a run logged and counted."""
    state = run.state
    return {
        "loss": runs.logged(run, "loss"),
        "grad_norm": runs.logged(run, "grad_norm"),
        "counts": (state.global_step, state.num_examples_seen, state.num_input_tokens_seen),
        "engine": type(run.engine).__name__,
    }


def rows_counted(prediction: Any) -> dict[str, float]:
    return {"rows": len(prediction.label_ids)}


def whole_run(folder: Path, count: int, kind: str, way: dict[str, Any]) -> dict[str, Any]:
    """What a run and its evaluation told, and the folder of its weights."""
    run = two_passes(folder, count, kind, way, compute_metrics=rows_counted)
    evaluated = run.evaluate(KINDS[kind][1](EVALUATED))
    run.save_model(str(folder / "final"))
    judged = {name: evaluated[f"eval_{name}"] for name in ("loss", "rows")}
    return {**told_by(run), "evaluated": judged, "final": folder / "final"}


def cell(
    folder: Path, count: int, kinds: list[str], ways: dict[str, dict[str, Any]], settings: dict[str, Any]
) -> dict[tuple[str, str], dict[str, Any]]:
    """All runs of an engine on a number of processes."""
    with contextlib.redirect_stdout(io.StringIO()):
        return {
            (kind, name): whole_run(folder / f"{kind}, {name}", count, kind, {**way, **settings})
            for kind in kinds
            for name, way in ways.items()
        }


@dataclass
class Differences:
    """The largest differences of runs from those of one process: of the losses and gradient norms of their steps and of
    the loss of their evaluation, each over its size, and of their weights; None where something else differs."""

    loss: float = 0.0
    norm: float = 0.0
    weights: float = 0.0
    evaluation: float = 0.0

    @classmethod
    def of(cls, found: dict[Any, dict[str, Any]], alone: dict[Any, dict[str, Any]]) -> Differences:
        """Runs of one process for each kind, with the way "plain" for all that are plain gradient descent.

        Raises:
            AssertionError: other steps, examples or tokens than in one process, or not each evaluated row once.
        """
        most = cls()
        for (kind, way), run in found.items():
            expected = alone[kind, way if way == ADAMW else "plain"]
            assert run["counts"] == expected["counts"], (kind, way)
            assert run["evaluated"]["rows"] == EVALUATED, (kind, way)
            most.loss = max(most.loss, _apart(run["loss"], expected["loss"]))
            most.norm = max(most.norm, _apart(run["grad_norm"], expected["grad_norm"]))
            most.evaluation = max(most.evaluation, _apart(run["evaluated"], expected["evaluated"]))
            one, other = (safetensors.torch.load_file(of["final"] / "model.safetensors") for of in (run, expected))
            most.weights = max(most.weights, runs.difference(one, other))
        return most

    def are_rounding(self) -> bool:
        """Below what is allowed."""
        return max(self.loss, self.norm, self.evaluation) < 2e-5 and self.weights < 2e-6


def _apart(found: dict[Any, float], expected: dict[Any, float]) -> float:
    assert found.keys() == expected.keys()
    return max(abs(found[name] - expected[name]) / abs(expected[name]) for name in expected)


def has_deepspeed() -> bool:
    """Whether it is installed. What it compiles is compiled then, before processes are forked."""
    found = importlib.util.find_spec("deepspeed")
    if found is None or found.origin is None:  # the tests have a folder of this name
        return False
    from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder

    ShareMemCommBuilder().load()
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)  # it has not tested plain gradient descent
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", nargs="+", choices=list(ENGINES), default=list(ENGINES))
    parser.add_argument("--kind", nargs="+", choices=list(KINDS), default=list(KINDS))
    asked = parser.parse_args()
    if any(name.startswith("ZeRO") for name in asked.engine) and not has_deepspeed():
        asked.engine = [name for name in asked.engine if not name.startswith("ZeRO")]
        print("DeepSpeed is not installed: left out.")
    torch.set_num_threads(1)
    forked.LONGEST = 1800.0
    folder, ways = Path(tempfile.mkdtemp(prefix="grid-")), {**WAYS, **BOTH}
    alone = cell(folder / "alone", 1, asked.kind, ways, {})
    print(f"Largest differences in {len(asked.kind)} × {len(ways)} runs (models × ways):\n")
    print("| engine | processes | loss | gradient norm | weights | evaluation |\n|---|---|---|---|---|---|", flush=True)
    fits = True
    for name in asked.engine:
        computes, settings, counts = ENGINES[name]
        for count in counts:
            at = folder / f"{name}, {count}"
            given = (at, count, asked.kind, ways, settings)
            found = alone if name == "single" else forked.values(forked.in_processes(count, at, cell, *given))[0]
            assert {run["engine"] for run in found.values()} == {computes}
            most = Differences.of(found, alone)
            fits = fits and most.are_rounding()
            numbers = (most.loss, most.norm, most.weights, most.evaluation)
            print(f"| {name} | {count} | {' | '.join(f'{number:.1e}' for number in numbers)} |", flush=True)
    return 0 if fits else 1


if __name__ == "__main__":
    raise SystemExit(main())
