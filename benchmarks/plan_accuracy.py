"""What `burnish plan` predicts on the CPU, against the peak resident memory of real runs.

    python benchmarks/plan_accuracy.py                    the whole grid
    python benchmarks/plan_accuracy.py --only llama       the cases whose name holds this

Each case is a process of its own with one thread: it loads the libraries, notes its resident memory, makes the model,
trains three steps, and reads its peak from /proc/self/status. "Above imports" is the peak without what the libraries
took before the model was made. The exit code is 1 where a prediction is more than 15 % off.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

TOLERANCE = 0.15
MIB = 1 << 20
SMALL = {"vocab_size": 16000, "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4}
MIDDLE = {"vocab_size": 32000, "hidden_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8}
LARGE = {"vocab_size": 30000, "hidden_size": 768, "num_hidden_layers": 6, "num_attention_heads": 12}
SMOLLM2 = {
    "vocab_size": 49152, "hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9,
    "num_key_value_heads": 3, "intermediate_size": 1536, "tie_word_embeddings": True, "max_position_embeddings": 8192,
}  # fmt: skip
WIDE = {
    "vocab_size": 16000, "hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 16,
    "intermediate_size": 2816,
}  # fmt: skip
GPT2_SHAPE = {"vocab_size": 30000, "n_embd": 512, "n_layer": 6, "n_head": 8, "n_positions": 512}
T5_SHAPE = {"vocab_size": 16000, "d_model": 384, "d_kv": 64, "d_ff": 1024, "num_layers": 4, "num_heads": 6}
LLAMA, BERT, MINILM, GPT2, T5 = "llama", "bert", "minilm", "gpt2", "t5"
CLASSES = {
    LLAMA: ("AutoModelForCausalLM", "LlamaForCausalLM", "LlamaConfig"),
    GPT2: ("AutoModelForCausalLM", "GPT2LMHeadModel", "GPT2Config"),
    T5: ("AutoModelForSeq2SeqLM", "T5ForConditionalGeneration", "T5Config"),
    BERT: ("AutoModelForSequenceClassification", "BertForSequenceClassification", "BertConfig"),
    MINILM: ("AutoModelForSequenceClassification", "", ""),
}
"""By kind: what is planned, what is trained, and its config."""


def case(name: str, kind: str, length: int, batch: int, shape: dict[str, Any] | None = None, **settings: Any) -> Any:
    return {"name": name, "kind": kind, "length": length, "batch": batch, "shape": shape or {}, **settings}


GRID = [
    case("MiniLM, 16 × 128", MINILM, 128, 16),
    case("MiniLM, 16 × 512", MINILM, 512, 16),
    case("MiniLM, 16 × 128, SGD", MINILM, 128, 16, optim="sgd"),
    case("MiniLM, 16 × 256, LoRA 8", MINILM, 256, 16, lora=8),
    case("bert 256 × 4, 32 × 64", BERT, 64, 32, {**SMALL, "intermediate_size": 1024}),
    case("bert 768 × 6, 16 × 128", BERT, 128, 16, {**LARGE, "intermediate_size": 3072}),
    case("bert 768 × 6, 16 × 256, checkpointing", BERT, 256, 16, {**LARGE, "intermediate_size": 3072}, recompute=True),
    case("llama 256 × 4, 16 × 128", LLAMA, 128, 16, {**SMALL, "intermediate_size": 768}),
    case("llama 512 × 8, 8 × 256", LLAMA, 256, 8, {**MIDDLE, "intermediate_size": 1536}),
    case("llama 512 × 8, 8 × 256, SGD", LLAMA, 256, 8, {**MIDDLE, "intermediate_size": 1536}, optim="sgd"),
    case("llama 512 × 8, 8 × 256, checkpointing", LLAMA, 256, 8, {**MIDDLE, "intermediate_size": 1536}, recompute=True),
    case("llama 512 × 8, 8 × 256, budget 4096", LLAMA, 256, 8, {**MIDDLE, "intermediate_size": 1536}, budget=4096),
    case("llama 768 × 6, 4 × 512", LLAMA, 512, 4, {**LARGE, "intermediate_size": 2048}),
    case("SmolLM2-135M shape, 4 × 512", LLAMA, 512, 4, SMOLLM2),
    case("SmolLM2-135M shape, 4 × 512, checkpointing", LLAMA, 512, 4, SMOLLM2, recompute=True),
    case("SmolLM2-135M shape, 4 × 512, LoRA 8", LLAMA, 512, 4, SMOLLM2, lora=8),
    case("SmolLM2-135M shape, 2 × 512", LLAMA, 512, 2, SMOLLM2, unclipped=True),
    case("SmolLM2-135M shape, 2 × 128", LLAMA, 128, 2, SMOLLM2, unclipped=True),
    case("SmolLM2-135M shape, 2 × 128, in backward", LLAMA, 128, 2, SMOLLM2, unclipped=True, in_backward=True),
    case("SmolLM2-135M shape, 2 × 512, in backward", LLAMA, 512, 2, SMOLLM2, unclipped=True, in_backward=True),
    case("llama 1024 × 8, 2 × 128", LLAMA, 128, 2, WIDE, unclipped=True),
    case("llama 1024 × 8, 2 × 128, in backward", LLAMA, 128, 2, WIDE, unclipped=True, in_backward=True),
    case("MiniLM, 16 × 256, checkpointing", MINILM, 256, 16, recompute=True),
    case("bert 768 × 6, 16 × 128, LoRA 16", BERT, 128, 16, {**LARGE, "intermediate_size": 3072}, lora=16),
    case("llama 512 × 8, 8 × 256, LoRA 64", LLAMA, 256, 8, {**MIDDLE, "intermediate_size": 1536}, lora=64),
    case(
        "llama 512 × 8, 8 × 256, LoRA 8, checkpointing",
        LLAMA,
        256,
        8,
        {**MIDDLE, "intermediate_size": 1536},
        lora=8,
        recompute=True,
    ),
    case("llama 512 × 8, 8 × 256, Adafactor", LLAMA, 256, 8, {**MIDDLE, "intermediate_size": 1536}, optim="adafactor"),
    case("llama 512 × 8, 2 × 1024", LLAMA, 1024, 2, {**MIDDLE, "intermediate_size": 1536}),
    case("gpt2 512 × 6, 8 × 256", GPT2, 256, 8, GPT2_SHAPE),
    case("gpt2 512 × 6, 8 × 256, LoRA 8", GPT2, 256, 8, GPT2_SHAPE, lora=8),
    case("gpt2 512 × 6, 8 × 256, checkpointing", GPT2, 256, 8, GPT2_SHAPE, recompute=True),
    case("t5 384 × 4, 16 × 128", T5, 128, 16, T5_SHAPE),
    case("t5 384 × 4, 16 × 128, LoRA 8", T5, 128, 16, T5_SHAPE, lora=8),
    case("t5 384 × 4, 16 × 128, checkpointing", T5, 128, 16, T5_SHAPE, recompute=True),
]


def config_of(chosen: dict[str, Any]) -> Any:
    import transformers

    if chosen["kind"] == MINILM:
        import reviews

        return transformers.AutoConfig.from_pretrained(reviews.model_folder())
    config = getattr(transformers, CLASSES[chosen["kind"]][2])(**chosen["shape"])
    if chosen["kind"] == T5:
        config.decoder_start_token_id = config.pad_token_id = 0
    return config


def predicted(chosen: dict[str, Any]) -> Any:
    """The `Memory` that is planned for a case."""
    from burnish.planning.planner import Planner
    from burnish.planning.scenario import Scenario
    from burnish.run.data import CPU_BUDGET

    scenario = Scenario(
        "cpu", chosen["length"], chosen["batch"], 1, optimizer=chosen.get("optim", "adamw_torch_fused"),
        checkpointing=chosen.get("recompute", False), lora_rank=chosen.get("lora"),
        in_backward=chosen.get("in_backward", False), sequences=2 if chosen["kind"] == T5 else 1,
    )  # fmt: skip
    return Planner(CLASSES[chosen["kind"]][0], config_of(chosen)).memory(
        scenario.within(chosen.get("budget", CPU_BUDGET.tokens))
    )


def resident(name: str) -> int:
    """Bytes of this process: VmRSS now, VmHWM at the most since the last reset."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def model_of(chosen: dict[str, Any]) -> Any:
    import transformers

    config = config_of(chosen)
    if chosen["kind"] == MINILM:
        import reviews

        model: Any = reviews.model(dropout=0.1)
    else:
        model = getattr(transformers, CLASSES[chosen["kind"]][1])(config)
    if chosen.get("lora"):
        import peft

        output = None if chosen["kind"] in (BERT, MINILM) else ["lm_head"]
        adapters = peft.LoraConfig(r=chosen["lora"], target_modules="all-linear", exclude_modules=output)
        model = peft.get_peft_model(model, adapters)
    return model.train()


def measured(chosen: dict[str, Any]) -> dict[str, int]:
    """Trains. Returns bytes: before the model was made, and at the most."""
    import torch

    for kind in ("bert", "llama", "gpt2", "t5"):
        importlib.import_module(f"transformers.models.{kind}.modeling_{kind}")

    import burnish
    import burnish.run.training

    torch.set_num_threads(1)
    if chosen.get("lora"):
        import peft  # noqa: F401
    imports = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of the imports
    torch.manual_seed(0)
    model = model_of(chosen)
    steps, length, batch = 3, chosen["length"], chosen["batch"]
    ids = torch.randint(5, 1000, (steps * batch, length)).tolist()
    rows = [
        {
            "input_ids": row,
            "attention_mask": [1] * length,
            "labels": number % 2 if chosen["kind"] in (BERT, MINILM) else row,
        }
        for number, row in enumerate(ids)
    ]
    args = burnish.TrainingArguments(
        output_dir=tempfile.mkdtemp(), max_steps=steps, per_device_train_batch_size=batch, save_strategy="no",
        report_to="none", disable_tqdm=True, use_cpu=True, optim=chosen.get("optim", "adamw_torch_fused"),
        gradient_checkpointing=chosen.get("recompute", False), token_budget=chosen.get("budget"),
        max_grad_norm=0.0 if chosen.get("unclipped") else 1.0, optim_in_backward=chosen.get("in_backward", False),
    )  # fmt: skip
    burnish.Trainer(model=model, args=args, train_dataset=rows).train()
    return {"imports": imports, "peak": resident("VmHWM")}


def run(chosen: dict[str, Any]) -> dict[str, int]:
    """`measured`, in a process of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, __file__, "--measure", json.dumps(chosen)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{chosen['name']} failed:\n{done.stderr[-3000:]}")
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--measure", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measured(options.measure)))
        return 0
    worst = 0.0
    print("| run | predicted MiB | measured MiB | ratio | above imports: predicted | measured | ratio |")
    print("|---|---|---|---|---|---|---|")
    for chosen in (one for one in GRID if options.only in one["name"]):
        found, memory = run(chosen), predicted(chosen)
        from burnish.planning.planner import IMPORTS

        plan, real = memory.peak, found["peak"]
        above, real_above = plan - IMPORTS, real - found["imports"]
        figures = (
            f"{plan / MIB:.0f} | {real / MIB:.0f} | {plan / real:.2f} | {above / MIB:.0f} | {real_above / MIB:.0f}"
        )
        print(f"| {chosen['name']} | {figures} | {above / real_above:.2f} |", flush=True)
        worst = max(worst, abs(plan / real - 1), abs(above / real_above - 1))
    print(f"\nfarthest off: {worst:.1%}")
    return int(worst > TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
