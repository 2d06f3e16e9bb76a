"""`burnish plan`: how much memory a run will take, and what would make it fit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from burnish.core.errors import SettingError

from .config_file import read_config
from .console import print_pairs, print_table, say
from .flags import Flag
from .help import help_text
from .parse import Given, parse
from .threads import load_torch

if TYPE_CHECKING:
    from burnish.planning.memory import Memory
    from burnish.planning.scenario import Scenario
    from burnish.planning.verdict import Kind, Verdict

USAGE = """\
Says how much memory a run will take, before it: from the model's config alone, without its weights.

Usage: burnish plan --model_name_or_path MODEL [flags of `burnish train`] [flags below]
       burnish plan run.yaml [flags]
"""
SECTION = "Memory"
FLAGS = (
    Flag("device", "str", None, "Where the run will be. Not given: where it would be here.", SECTION, "plan",
         choices=("cpu", "cuda")),
    Flag("device_memory_gib", "float", None, "Memory of the device in GiB. Not given: that of this machine.", SECTION,
         "plan"),
    Flag("lora_rank", "int", None, "Train adapters of this rank on all linear layers instead of the weights.", SECTION,
         "plan"),
    Flag("load_in_4bit", "bool", False, "Hold the frozen weights in 4 bits (QLoRA).", SECTION, "plan", alone=True),
    Flag("zero_stage", "int", None, "What processes share: 1 optimizer states, 2 gradients too, 3 weights too. Not "
         "given: as --deepspeed or --fsdp say.", SECTION, "plan"),
    Flag("num_processes", "int", 1, "Processes, each with a device of its own.", SECTION, "plan"),
    Flag("offload_optimizer", "bool", False, "Keep the optimizer's states on the host.", SECTION, "plan", alone=True),
    Flag("compare", "bool", False, "Also: every weight, LoRA and QLoRA, at each stage of ZeRO and with offloading.",
         SECTION, "plan", alone=True),
    Flag("json", "bool", False, "Print JSON.", SECTION, "plan", alone=True),
)  # fmt: skip
CLASSES = {
    "text-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "causal-lm": "AutoModelForCausalLM",
    "masked-lm": "AutoModelForMaskedLM",
    "seq2seq": "AutoModelForSeq2SeqLM",
}
SHARE_OF_TARGETS = {"masked-lm": 0.15}
"""Of positions; every position of a causal or seq2seq model counts as a target."""
USUAL_LENGTH = {"causal-lm": 1024}
OTHER_LENGTH = 512
MIB, GIB = 1 << 20, 1 << 30


def command(words: Sequence[str]) -> int:
    """Runs `burnish plan` with the words that follow it. Exit code 0, whether it fits or not."""
    from .schema import train_flags

    flags = {**train_flags(), **{flag.name: flag for flag in FLAGS}}
    if {"-h", "--help", "--help-all", "--help_all"} & set(words):
        say(help_text(USAGE, FLAGS, closing="All flags of `burnish train` are taken, too: burnish train --help-all."))
        return 0
    given, own = read(words, flags)
    load_torch()
    from .quiet import quiet

    with quiet():
        scenario, verdict, kinds = plan(given, own)
    if own["json"]:
        say(json.dumps(as_json(given, scenario, verdict, kinds), indent=2))
    else:
        show(given, scenario, verdict)
        show_compared(kinds, verdict.limit)
    return 0


def read(words: Sequence[str], flags: dict[str, Flag]) -> tuple[Given, dict[str, Any]]:
    """What was given for the run, and for the plan of it. Raises `SettingError`."""
    from pathlib import Path

    from burnish.arguments.old_names import OLD_NAMES

    given = parse(words, flags, frozenset(OLD_NAMES))
    if given.words:
        given = given.over(read_config(Path(given.words[0]), flags, frozenset(OLD_NAMES)))
    own = {flag.name: given.values.pop(flag.name, flag.default) for flag in FLAGS}
    if own["device"] not in (None, "cpu", "cuda"):
        raise SettingError(f"--device {own['device']}: choose one of cpu, cuda.")
    if not given.values.get("model_name_or_path"):
        raise SettingError(
            "Missing: --model_name_or_path. For example:\n"
            "  burnish plan --model_name_or_path MODEL --task causal-lm --max_seq_length 1024 --device_memory_gib 24"
        )
    return given, own


def plan(given: Given, own: dict[str, Any]) -> tuple[Scenario, Verdict, list[Kind]]:
    """The scenario that the settings stand for, the verdict on it, and other ways where they are asked for."""
    from burnish.models.loading import load_config
    from burnish.planning.planner import Planner
    from burnish.planning.room import memory_of_device
    from burnish.planning.verdict import compared, judge

    names = ("model_name_or_path", "config_name", "cache_dir", "model_revision", "token", "trust_remote_code")
    config = load_config(**{name: given.values[name] for name in names if name in given.values})
    scenario = scenario_of(given, own, config)
    limit = own["device_memory_gib"]
    room = memory_of_device(scenario.device) if limit is None else round(limit * GIB)
    planner = Planner(CLASSES[task_of(given)], config)
    kinds = compared(scenario, planner.memory) if own["compare"] else []
    return scenario, judge(scenario, planner.memory, room), kinds


def task_of(given: Given) -> str:
    from burnish.tasks.registry import recipe

    from .schema import DEFAULT_TASK

    return recipe(given.values.get("task") or DEFAULT_TASK).name


def scenario_of(given: Given, own: dict[str, Any], config: Any) -> Scenario:
    """Settings of a run to what decides its memory. Raises `SettingError`."""
    from burnish.arguments.old_names import translate
    from burnish.arguments.training_arguments import Seq2SeqTrainingArguments
    from burnish.optim.options import parse_options
    from burnish.planning.scenario import Scenario
    from burnish.run.data import CPU_BUDGET

    from .schema import training_flags

    theirs = {flag.name for flag in training_flags()} | set(_old_names())
    training = translate({name: value for name, value in given.values.items() if name in theirs})
    device = own["device"] or device_here(bool(training.get("use_cpu")))
    # precision is checked against the device at hand, and the run may be on another one
    precision = {name: bool(training.pop(name, False)) for name in ("bf16", "fp16")}
    arguments = Seq2SeqTrainingArguments(**{"output_dir": "plan", **training, "use_cpu": True})
    task = task_of(given)
    rows = arguments.per_device_train_batch_size
    options = parse_options(arguments.optim_args, "optim_args")
    scenario = Scenario(
        device=device,
        length=length_of(given, config, task),
        rows=rows,
        micro_batches=arguments.gradient_accumulation_steps,
        sequences=2 if getattr(config, "is_encoder_decoder", False) else 1,
        share_of_targets=SHARE_OF_TARGETS.get(task, 1.0),
        optimizer=str(getattr(arguments.optim, "value", arguments.optim)),
        momentum=float(options.get("momentum", 0) or 0),
        weights=weights_type(given.values.get("torch_dtype"), config),
        autocast=next((name for name, is_set in precision.items() if is_set), None),
        checkpointing=bool(arguments.gradient_checkpointing),
        in_backward=bool(arguments.optim_in_backward),
        lora_rank=own["lora_rank"],
        four_bit=own["load_in_4bit"],
        zero_stage=stage_of(arguments) if own["zero_stage"] is None else own["zero_stage"],
        num_processes=own["num_processes"],
        offload=own["offload_optimizer"],
        at_targets=bool(arguments.logits_at_targets),
        label_smoothing=arguments.label_smoothing_factor,
    )
    if device == "cpu":
        return scenario.within(arguments.token_budget or CPU_BUDGET.tokens)
    return scenario.within(arguments.token_budget) if arguments.token_budget else scenario


def stage_of(arguments: Any) -> int:
    """The stage of ZeRO that `deepspeed` asks for, or at which as much is shared as with `fsdp`. 0 for what is divided
    within a machine alone (hybrid), since how many processes a machine has is not known here."""
    from burnish.core import zero_settings

    if arguments.deepspeed:
        return zero_settings.stage_of(zero_settings.read(arguments.deepspeed))
    return {"full_shard": 3, "shard_grad_op": 2}.get((arguments.fsdp or "").split(" ")[0], 0)


def _old_names() -> Sequence[str]:
    from burnish.arguments.old_names import OLD_NAMES

    return tuple(OLD_NAMES)


def device_here(use_cpu: bool) -> str:
    """The device that a run would take on this machine."""
    import torch

    return "cuda" if torch.cuda.is_available() and not use_cpu else "cpu"


def length_of(given: Given, config: Any, task: str) -> int:
    """Tokens of a row: what was asked for, or what the task cuts at, and not more than the model takes."""
    most = getattr(config, "max_position_embeddings", None) or 1 << 30
    return int(min(given.values.get("max_seq_length") or USUAL_LENGTH.get(task, OTHER_LENGTH), most))


def weights_type(asked: str | None, config: Any) -> str:
    """The type that the weights would be loaded in. Raises `SettingError`."""
    if asked == "auto":
        return str(getattr(config, "dtype", None) or "float32").removeprefix("torch.")
    if asked not in (None, "float32", "bfloat16", "float16"):
        raise SettingError(f"--torch_dtype {asked}: choose one of float32, bfloat16, float16, auto.")
    return asked or "float32"


PARTS = {
    "weights": "weights",
    "gradients": "gradients",
    "tables": "gradient buffers of embedding tables",
    "optimizer": "optimizer",
    "activations": "activations of a micro-batch",
    "logits": "logits and loss",
    "working": "intermediate results",
    "holes": "freed room between tensors",
    "framework": "libraries and kernels",
    "on_host": "on the host",
}


def size(number: float) -> str:
    """Bytes for a person."""
    return f"{number / GIB:.2f} GiB" if abs(number) >= GIB else f"{number / MIB:.0f} MiB"


def show(given: Given, scenario: Scenario, verdict: Verdict) -> None:
    """Settings, parts, peak, verdict, and what was tried to make it fit."""
    memory = verdict.memory
    print_pairs("plan", about(given, scenario))
    say()
    parts = [[text, size(getattr(memory, name))] for name, text in PARTS.items() if getattr(memory, name)]
    each = " on each process" if scenario.num_processes > 1 else ""
    print_table(f"memory{each}", ["what", "at the most"], [*parts, [f"peak ({memory.moment})", size(memory.peak)]])
    say()
    say(sentence(verdict))
    if verdict.changes:
        say()
        rows = [[c.what, size(c.memory.peak), _fits(c.memory, verdict.limit), c.flags] for c in verdict.changes]
        print_table("changes", ["change", "peak", "", "flags"], rows)


COMPARED = ("weights", "gradients", "optimizer", "activations", "logits", "on_host", "peak")


def show_compared(kinds: Sequence[Kind], limit: int | None) -> None:
    """Parts and peak of each way to train, on one process."""
    if kinds:
        say()
        heads = ["trained", "shared", *(name.replace("_", " ") for name in COMPARED), ""]
        rows = [
            [k.trained, k.shared, *(size(getattr(k.memory, name)) for name in COMPARED), _fits(k.memory, limit)]
            for k in kinds
        ]
        print_table("compared", heads, rows)


def about(given: Given, scenario: Scenario) -> list[tuple[str, str]]:
    kind = "every weight" if scenario.lora_rank is None else f"LoRA of rank {scenario.lora_rank}"
    kind += " on 4-bit weights" if scenario.four_bit else ""
    batch = f"{scenario.rows} × {scenario.length} tokens, {scenario.micro_batches} a step"
    pairs = [
        ("model", given.values["model_name_or_path"]),
        ("task", task_of(given)),
        ("device", f"{scenario.device} ({scenario.autocast or scenario.weights})"),
        ("trained", f"{kind}, {scenario.optimizer}"),
        ("micro-batch", batch + (", activations computed again" if scenario.checkpointing else "")),
    ]
    if scenario.num_processes > 1:
        pairs.append(("processes", f"{scenario.num_processes}, ZeRO stage {scenario.zero_stage}"))
    return pairs


def sentence(verdict: Verdict) -> str:
    """The verdict in words."""
    if verdict.limit is None:
        return "How much memory the device has is not known here: give --device_memory_gib."
    if verdict.fits:
        return f"It fits: of {size(verdict.limit)}, {size(-verdict.missing)} stay free."
    text = f"It does not fit: {size(verdict.missing)} more than the {size(verdict.limit)} there are."
    best = verdict.cheapest
    if best is None:
        return f"{text} None of the changes below is enough."
    return f"{text} The cheapest change that fits: {best.what} ({best.flags})."


def _fits(memory: Memory, limit: int | None) -> str:
    if limit is None:
        return ""
    return "fits" if memory.peak <= limit else "too much"


def as_json(given: Given, scenario: Scenario, verdict: Verdict, kinds: Sequence[Kind]) -> dict[str, Any]:
    """All that is known, in bytes."""
    return {
        "model": given.values["model_name_or_path"],
        "task": task_of(given),
        "scenario": asdict(scenario),
        "memory": asdict(verdict.memory),
        "limit": verdict.limit,
        "fits": verdict.fits,
        "cheapest": verdict.cheapest.flags if verdict.cheapest else None,
        "changes": [
            {"what": c.what, "flags": c.flags, "peak": c.memory.peak, "scenario": asdict(c.scenario)}
            for c in verdict.changes
        ],
        "compared": [asdict(kind) for kind in kinds],
    }
