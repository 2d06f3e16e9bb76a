"""Between two logs the host does not read what a device computes: it would wait for it, and then the device for the
host.

The tensors here are on the CPU, while the engine says that it computes elsewhere: so the ways of a device that works on
its own are taken, and each read shows in what torch is asked to do.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from trainer import runs

import burnish

PACKAGE = str(Path(burnish.__file__).parent)
TORCH = str(Path(torch.__file__).parent)
READS = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2", "unique_dim", "unique_consecutive")
"""Operations whose result, or the size of whose result, the host reads. `item`, `bool`, `float` and `int` are the
first; indexing with a mask is the second."""
ON_THE_HOST = ("data", "run/data.py")
"""Where batches are made, before they go to the device."""


class Elsewhere(str):
    """The CPU under the name of another device."""

    type = "mps"


class Cuda(Elsewhere):
    type = "cuda"


class Event:
    """What a device has done, when it has done all of it."""

    def record(self) -> None: ...

    def query(self) -> bool:
        return True

    def synchronize(self) -> None: ...


class Reads(TorchDispatchMode):
    """Counts reads by the file and function of burnish that asks for them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()
        self._counts = False
        for name in ("tolist", "numpy", "__array__"):
            patch.setattr(torch.Tensor, name, self._noting(getattr(torch.Tensor, name)))

    def _noting(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def read(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if self._counts:
                self._note()
            return method(tensor, *args, **kwargs)

        return read

    def __enter__(self) -> Any:
        self._counts = True
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        self._counts = False
        super().__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ in READS:
            self._note()
        return func(*args, **(kwargs or {}))

    def _note(self) -> None:
        asking = next((f for f in _frames() if not f.f_code.co_filename.startswith((TORCH, __file__))), None)
        if asking is not None and asking.f_code.co_filename.startswith(PACKAGE):
            place = asking.f_code.co_filename[len(PACKAGE) + 1 :]
            if not place.startswith(ON_THE_HOST):
                self.found[f"{place}:{asking.f_code.co_name}"] += 1


def _frames() -> Iterator[Any]:
    frame: Any = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


class Watching(burnish.TrainerCallback):
    """Reads from the second step to before the log."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.reads = Reads(patch)
        self.before: Counter[str] = Counter()

    def on_step_begin(self, args: Any, state: Any, control: Any, **details: Any) -> None:
        if state.global_step == 1:
            self.reads.__enter__()

    def on_step_end(self, args: Any, state: Any, control: Any, **details: Any) -> None:
        if state.global_step == STEPS - 1:
            self.reads.__exit__(None, None, None)


STEPS = 8


def reads_of(folder: Path, patch: pytest.MonkeyPatch, parts: dict[str, Any], **settings: Any) -> Counter[str]:
    watching = Watching(patch)
    run = runs.trainer(
        folder, parts={**parts, "callbacks": [watching]},
        max_steps=STEPS, logging_steps=STEPS, logging_first_step=False, gradient_accumulation_steps=2, **settings,
    )  # fmt: skip
    run.train()
    assert list(runs.logged(run, "loss")) == [STEPS]
    return watching.reads.found


def language_model() -> dict[str, Any]:
    import transformers

    collator = transformers.DataCollatorForSeq2Seq(tiny.tokenizer())
    return {"model": tiny.llama(), "train_dataset": tiny.language_rows(18), "data_collator": collator}


def with_terms() -> dict[str, Any]:
    def loss(outputs: Any, labels: Any) -> dict[str, torch.Tensor]:
        found = torch.nn.functional.cross_entropy(outputs.logits, labels)
        return {"loss": found, "size": outputs.logits.square().mean()}

    return {"compute_loss_func": loss}


KINDS: dict[str, Callable[[], dict[str, Any]]] = {
    "classification": dict,
    "language model": language_model,
    "named terms of a loss": with_terms,
}
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "bf16": {"bf16": True},
    "skip": {"nonfinite_policy": "skip"},
    "not clipped": {"max_grad_norm": 0.0},
    "few tokens": {"token_budget": 30},
}


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_device_is_not_waited_for(kind: str, settings: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("burnish.engines.choice.device_for", lambda use_cpu: Elsewhere("cpu"))
    assert reads_of(tmp_path, monkeypatch, KINDS[kind](), **SETTINGS[settings]) == {}


def test_on_cuda_a_flag_is_sent_to_the_host_and_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The read is of host memory, when the event says that it has arrived."""
    monkeypatch.setattr("burnish.engines.choice.device_for", lambda use_cpu: Cuda("cpu"))
    monkeypatch.setattr("torch.cuda.Event", Event)
    empty = torch.empty
    monkeypatch.setattr("torch.empty", lambda *size, pin_memory=False, **kwargs: empty(*size, **kwargs))
    found = reads_of(tmp_path, monkeypatch, language_model(), dataloader_pin_memory=False)
    assert found == {"loop/nonfinite.py:look": STEPS - 2}


def test_an_optimizer_that_cannot_leave_a_step_out_on_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether to call it is read, once a step. The default is a fused one, which can."""
    monkeypatch.setattr("burnish.engines.choice.device_for", lambda use_cpu: Elsewhere("cpu"))
    assert reads_of(tmp_path, monkeypatch, {}, optim="sgd") == {"engines/single.py:update": STEPS - 2}


def test_on_the_cpu_it_is_whether_the_step_is_finite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There reading is free. Before the update, before that whether it is to be clipped, and once after it, when it can
    be told."""
    found = reads_of(tmp_path, monkeypatch, {}, padding_free=False)
    places = ("engines/single.py:_is_within", "engines/single.py:update", "loop/nonfinite.py:look")
    assert found == dict.fromkeys(places, STEPS - 2)
