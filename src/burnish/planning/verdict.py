"""Whether a run fits, and the cheapest change with which it would."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from burnish.optim.catalogue import OPTIMIZERS

from .memory import Memory
from .scenario import Scenario

Plan = Callable[[Scenario], Memory]
SMALLEST_BUDGET = 256
"""Tokens below which a smaller micro-batch is not proposed: matrix products become slow."""
ADAPTER_RANK = 16
GROUPS = (2, 8, 64)
"""Numbers of processes that are tried with ZeRO."""
EIGHT_BITS = "adamw_8bit"


@dataclass(frozen=True)
class Change:
    """A scenario that differs from the one that was asked for, and what it comes to."""

    what: str
    flags: str
    """What to write on the command line."""
    scenario: Scenario
    memory: Memory


@dataclass(frozen=True)
class Verdict:
    memory: Memory
    limit: int | None
    """Bytes there are; None if that is not known."""
    changes: tuple[Change, ...] = ()
    """What was tried, cheapest first; the last one fits, if one does."""

    @property
    def fits(self) -> bool | None:
        return None if self.limit is None else self.memory.peak <= self.limit

    @property
    def missing(self) -> int:
        """Bytes by which it does not fit; negative: what is left."""
        return 0 if self.limit is None else self.memory.peak - self.limit

    @property
    def cheapest(self) -> Change | None:
        """The change that makes it fit, where one is needed and known."""
        last = self.changes[-1] if self.changes else None
        return last if last is not None and self.limit is not None and last.memory.peak <= self.limit else None


@dataclass(frozen=True)
class Kind:
    """A way to train the same model on the same step, and what it comes to on one process."""

    trained: str
    shared: str
    """What the processes share out."""
    scenario: Scenario
    memory: Memory


def compared(scenario: Scenario, plan: Plan) -> list[Kind]:
    """Every weight, adapters, and adapters on 4 bits; each with all that ZeRO can share out between the processes."""
    rank = scenario.lora_rank or ADAPTER_RANK
    kinds = {
        "every weight": replace(scenario, lora_rank=None, four_bit=False),
        f"LoRA, rank {rank}": replace(scenario, lora_rank=rank, four_bit=False, in_backward=False),
        f"QLoRA, rank {rank}": replace(scenario, lora_rank=rank, four_bit=True, in_backward=False),
    }
    rows = [(trained, *way) for trained, kind in kinds.items() for way in _shared_out(kind)]
    return [Kind(trained, shared, kind, plan(kind)) for trained, shared, kind in rows]


def _shared_out(scenario: Scenario) -> Iterator[tuple[str, Scenario]]:
    stages = range(4) if scenario.num_processes > 1 else range(1)
    hosts = (False, True) if scenario.device != "cpu" else (False,)
    for stage in stages:
        for offload in hosts:
            name = f"ZeRO {stage}" if stage else "nothing"
            text = f"{name}, optimizer on the host" if offload else name
            yield text, replace(scenario, zero_stage=stage, offload=offload)


Step = tuple[str, str, Callable[[Scenario], Scenario]]
"""What is changed, its flags, and how."""


def judge(scenario: Scenario, plan: Plan, limit: int | None) -> Verdict:
    """The memory of a scenario and, where it is too much, changes in the order of their price: first each alone, then
    one on top of the other, until it fits."""
    memory = plan(scenario)
    if limit is None or memory.peak <= limit:
        return Verdict(memory, limit)
    tried: list[Change] = []
    for change in _alone(scenario, plan):
        tried.append(change)
        if change.memory.peak <= limit:
            return Verdict(memory, limit, tuple(tried))
    for change in _together(scenario, plan):
        tried.append(change)
        if change.memory.peak <= limit:
            break
    return Verdict(memory, limit, tuple(tried))


def _alone(scenario: Scenario, plan: Plan) -> Iterator[Change]:
    for what, flags, change in steps(scenario):
        changed = change(scenario)
        yield Change(what, flags, changed, plan(changed))


def _together(scenario: Scenario, plan: Plan) -> Iterator[Change]:
    """Each change on top of those before it, as far as they go together and it saves something."""
    names: list[str] = []
    words: list[str] = []
    memory = plan(scenario)
    for number, (what, flags, change) in enumerate(steps(scenario)):
        changed = change(scenario)
        if changed == scenario or changed.in_backward != scenario.in_backward:
            continue  # an update within the backward pass goes with neither 8 bits nor several processes
        found = plan(changed)
        if found.peak >= memory.peak:
            continue
        kind = what.partition(" ")[0].removeprefix("Q")  # more processes, or adapters on 4 bits, replace those before
        kept = [i for i, name in enumerate(names) if not name.startswith(kind)]
        names, words = [names[i] for i in kept] + [what], [words[i] for i in kept] + [flags]
        scenario, memory = changed, found
        if number > 0:
            yield Change(" + ".join(names), " ".join(words), scenario, memory)


def steps(scenario: Scenario) -> Iterator[Step]:
    """Changes to a scenario that save memory, by what they cost: time first, then exactness, then other weights, then
    more machines."""
    if not scenario.checkpointing:
        yield "gradient checkpointing", "--gradient_checkpointing", lambda s: replace(s, checkpointing=True)
    if scenario.rows > 1:
        tokens = max(SMALLEST_BUDGET, scenario.row_tokens, scenario.tokens // 4)
        if scenario.within(tokens).rows < scenario.rows:
            yield f"{tokens} tokens at once", f"--token_budget {tokens}", lambda s: s.within(tokens)
    if not scenario.in_backward and scenario.lora_rank is None and scenario.num_processes == 1:
        yield (
            "update in the backward pass",
            "--optim_in_backward --max_grad_norm 0",
            lambda s: replace(s, in_backward=True),
        )
    if scenario.autocast is None and scenario.weights == "float32" and scenario.device != "cpu":
        yield "bf16", "--bf16", lambda s: replace(s, autocast="bf16")
    if scenario.optimizer != EIGHT_BITS and scenario.lora_rank is None and _is_adam(scenario.optimizer):
        yield "8-bit optimizer", f"--optim {EIGHT_BITS}", lambda s: replace(s, optimizer=EIGHT_BITS)
    if scenario.lora_rank is None:
        yield (
            f"LoRA, rank {ADAPTER_RANK}",
            f"--lora_rank {ADAPTER_RANK}",
            lambda s: replace(s, lora_rank=ADAPTER_RANK),
        )
    if not scenario.four_bit:
        rank = scenario.lora_rank or ADAPTER_RANK
        yield (
            f"QLoRA, rank {rank}",
            f"--lora_rank {rank} --load_in_4bit",
            lambda s: replace(s, lora_rank=s.lora_rank or rank, four_bit=True),
        )
    if scenario.device != "cpu":
        yield from _on_more_devices(scenario)


def _on_more_devices(scenario: Scenario) -> Iterator[Step]:
    for number in (n for n in GROUPS if n > scenario.num_processes):
        for stage in (2, 3):

            def shared(s: Scenario, stage: int = stage, number: int = number) -> Scenario:
                return replace(s, zero_stage=max(stage, s.zero_stage), num_processes=number)

            yield f"ZeRO {stage} on {number} processes", f"--zero_stage {stage} --num_processes {number}", shared
    if not scenario.offload:
        yield "optimizer on the host", "--offload_optimizer", lambda s: replace(s, offload=True)


def _is_adam(name: str) -> bool:
    return name in OPTIMIZERS and OPTIMIZERS[name].class_name == "AdamW" and not name.endswith("bit")
