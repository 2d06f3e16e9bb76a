"""How long training of a divided model stands still for a checkpoint: a Llama of 42 million weights with the moments of
AdamW (0.5 GB) on two CPU processes with FSDP.

Stalls are measured as in `checkpoint_stall`, on the first process; both wait for each other in every step.

python benchmarks/divided_stall.py --kind parts
python benchmarks/divided_stall.py --kind full --in_front
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import measure
import torch
from checkpoint_stall import SAVE_STEPS, Watch

FOLDER = "DIVIDED_STALL_FOLDER"
COUNT, LENGTH, WORDS = 2, 96, 16_000
KINDS = {"parts": "SHARDED_STATE_DICT", "full": "FULL_STATE_DICT"}


def model() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 10, "num_attention_heads": 8}
    return LlamaForCausalLM(LlamaConfig(vocab_size=WORDS, tie_word_embeddings=True, **sizes))


def rows(count: int) -> list[dict[str, Any]]:
    words = torch.randint(3, WORDS, (count, LENGTH), generator=torch.Generator().manual_seed(1)).tolist()
    return [{"input_ids": one, "labels": one} for one in words]


def worker(options: argparse.Namespace, folder: Path) -> None:
    """One process; the first one writes down what it has measured."""
    import burnish

    watch = Watch(folder)

    class Times(burnish.TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            watch.begin(state.global_step)

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            watch.end()

    args = burnish.TrainingArguments(
        output_dir=str(folder),
        max_steps=options.steps,
        per_device_train_batch_size=1,
        save_strategy="steps",
        save_steps=SAVE_STEPS,
        save_async=not options.in_front,
        fsdp=True,
        fsdp_config={"state_dict_type": KINDS[options.kind]},
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    run = burnish.Trainer(model=model(), args=args, train_dataset=rows(COUNT * options.steps), callbacks=[Times()])
    with measure.Meter() as meter:
        run.train()
    if args.process_index == 0:
        size = sum(path.stat().st_size for path in (folder / f"checkpoint-{SAVE_STEPS}").rglob("*") if path.is_file())
        found = {"kind": options.kind, "save_async": args.save_async, "checkpoint_mb": round(size / 1e6)}
        print(json.dumps({**found, **meter.figures(), **watch.figures()}, indent=2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=KINDS, default="parts", help="the files of a checkpoint")
    parser.add_argument("--steps", type=int, default=2 * SAVE_STEPS + 2, help="optimizer steps")
    parser.add_argument("--in_front", action="store_true", help="write before the training goes on: save_async=False")
    options = parser.parse_args()
    options.steps = max(options.steps, SAVE_STEPS + 1)
    if FOLDER in os.environ:
        worker(options, Path(os.environ[FOLDER]))
        return
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        command = ["-m", "torch.distributed.run", f"--nproc_per_node={COUNT}", "--rdzv-backend=c10d",
                   "--rdzv-endpoint=127.0.0.1:0", *sys.argv]  # fmt: skip
        environment = {**os.environ, FOLDER: name, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        sys.exit(subprocess.run([sys.executable, *command], env=environment).returncode)


if __name__ == "__main__":
    main()
