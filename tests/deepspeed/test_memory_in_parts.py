"""How much memory a process takes for a model that is loaded in parts, and for one that comes whole.

`pytest tests/deepspeed/test_memory_in_parts.py -s` prints the figures.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny
import transformers
from distributed.forked import in_processes, values
from trainer import runs
from zero_runs import stage

import burnish

GIVES_BACK = (-3, 1 << 16)
"""For `mallopt` of the C library: what is freed of 64 KiB or more (M_MMAP_THRESHOLD) is the system's again at once."""

WORK = ("load", "evaluate", "save", "train")


def large(**changes: Any) -> Any:
    shape = {"hidden_size": 768, "num_attention_heads": 12, "num_key_value_heads": 12, "intermediate_size": 2048}
    return tiny.llama(**shape, num_hidden_layers=5, vocab_size=4096, **changes)


class Watched:
    """Memory of this process that is its own: what is mapped from a file the system can take back."""

    def __init__(self) -> None:
        self.most: dict[str, int] = {}

    @contextlib.contextmanager
    def during(self, work: str) -> Iterator[None]:
        ended = threading.Event()
        first, self.most[work] = _own_bytes(), 0

        def look() -> None:
            while not ended.wait(0.002):
                self.most[work] = max(self.most[work], _own_bytes() - first)

        watch = threading.Thread(target=look)
        watch.start()
        try:
            yield
        finally:
            ended.set()
            watch.join()


def _own_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("RssAnon", "RssShmem")))


def worked(folder: Path, source: Path, in_parts: bool) -> dict[str, int]:
    """The most memory beyond what there was before, at each kind of work."""
    c_library = ctypes.CDLL(None)
    c_library.mallopt(*GIVES_BACK)
    c_library.malloc_trim(0)  # what the process that this one was forked from had left
    watched = Watched()
    few = {"stage3_max_live_parameters": 1_000_000, "stage3_max_reuse_distance": 0, "stage3_prefetch_bucket_size": 0}
    config = {**stage(3, reduce_bucket_size=1_000_000, **few)}
    settings = {"max_steps": 1, "per_device_train_batch_size": 2, "optim": "sgd", "deepspeed": config}
    args = runs.arguments(folder, **settings) if in_parts else None
    with watched.during("load"):
        model = transformers.AutoModelForCausalLM.from_pretrained(source)
    args = args or runs.arguments(folder, **settings)
    rows = tiny.language_rows(8)
    trainer = burnish.Trainer(model, args, train_dataset=rows, eval_dataset=rows)
    with watched.during("evaluate"):
        trainer.evaluate()
    with watched.during("save"):
        trainer.save_model(str(folder / "saved"))
    with watched.during("train"):
        trainer.train()
    return watched.most


def test_no_process_holds_a_model_that_lies_in_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = large()
    size = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    source = tmp_path / "model"
    model.save_pretrained(source, max_shard_size="20MB")
    del model
    found = {
        kind: values(in_processes(2, tmp_path / kind, worked, tmp_path / kind, source, kind == "in parts"))
        for kind in ("in parts", "whole")
    }
    with capsys.disabled():
        print(f"\nmemory of a process in sizes of the model ({size / 1e6:.0f} MB), the larger of two")
        for kind, of_processes in found.items():
            print(f"  {kind:9}", *(f"{work} {max(one[work] for one in of_processes) / size:.2f}" for work in WORK))
    assert size > 100e6
    for one in found["in parts"]:
        assert max(one["load"], one["evaluate"], one["save"]) < 0.8 * size
    largest = {kind: max(one["train"] for one in of_processes) for kind, of_processes in found.items()}
    assert largest["in parts"] < largest["whole"] - 0.25 * size
    saved = [
        runs.weights(transformers.AutoModelForCausalLM.from_pretrained(folder))
        for folder in (tmp_path / "in parts" / "saved", source)
    ]
    assert runs.difference(*saved) == 0.0
