"""The README.md of a trained model: what it is, how good it is, how to use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HYPERPARAMETERS = (
    *("learning_rate", "per_device_train_batch_size", "gradient_accumulation_steps"),
    *("optim", "lr_scheduler_type", "warmup_steps", "weight_decay", "max_grad_norm", "label_smoothing_factor"),
    *("bf16", "fp16", "seed"),
)


@dataclass(frozen=True)
class CardFacts:
    """What the card tells."""

    name: str
    task: str
    """As pipelines of transformers name it; "" where it is not known."""
    base_model: str
    data: Mapping[str, str]
    """What the rows were for ("training", "validation") to the name of the file or dataset."""
    results: Mapping[str, float]
    settings: Mapping[str, Any]
    versions: Mapping[str, str]
    folder: Path
    notes: Sequence[tuple[str, str]] = field(default_factory=tuple)
    has_curve: bool = False
    is_adapter: bool = False
    source: str = ""
    """What `from_pretrained` is given: a name on the hub, or the name of the folder."""
    loaded_by: str | None = None
    """The class whose `from_pretrained` reads the folder, "" where that is not known; None for `burnish predict`."""


OURS = "<!-- burnish writes this file anew with every model it saves here, until this line is removed. -->"


def may_replace(card: Path) -> bool:
    """Whether a card may be written here: there is none, or one of ours that nobody has taken over."""
    return not card.exists() or not is_somebodys_own(card.read_text(encoding="utf-8", errors="replace"))


def is_somebodys_own(card: str) -> bool:
    """Whether a card of this text was not written by burnish, or was taken over."""
    return OURS not in card


def model_card(facts: CardFacts) -> str:
    """The text of the card, as Markdown with a YAML header."""
    parts = [_header(facts), f"# {facts.name}", _opening(facts), _use(facts), _results(facts), _training(facts)]
    return "\n\n".join(part for part in [*parts, OURS] if part) + "\n"


def _header(facts: CardFacts) -> str:
    lines = ["---", f"library_name: {'peft' if facts.is_adapter else 'transformers'}"]
    if facts.base_model and not Path(facts.base_model).exists():  # a name on the hub
        lines.append(f"base_model: {facts.base_model}")
    if facts.task in _PIPELINES:
        lines.append(f"pipeline_tag: {facts.task}")
    return "\n".join([*lines, "tags:", "- burnish", "---"])


def _opening(facts: CardFacts) -> str:
    base = Path(facts.base_model).name if Path(facts.base_model).exists() else facts.base_model
    data = " and ".join(f"`{name}` ({purpose})" for purpose, name in facts.data.items())
    what = f"`{base}`, fine-tuned" if base else "A model, trained"
    task = f" for {facts.task.replace('-', ' ')}" if facts.task else ""
    adapter = " It is an adapter: the weights of that model are not in this folder." if facts.is_adapter else ""
    return f"{what}{task} on {data or 'data of its own'} with burnish.{adapter}"


def _use(facts: CardFacts) -> str:
    lines, source = ["## Use"], facts.source or facts.folder.name
    if facts.loaded_by is None and "/" in source:
        lines += ["", "```bash", f"hf download {source} --local-dir model", "burnish predict model data.csv", "```"]
    elif facts.loaded_by is None:
        lines += ["", "```bash", f"burnish predict {facts.folder.name} data.csv", "```"]
    elif facts.loaded_by:
        library = "peft" if facts.is_adapter else "transformers"
        lines += ["", "```python", f"from {library} import {facts.loaded_by}", ""]
        lines += [f'model = {facts.loaded_by}.from_pretrained("{source}")', "```"]
    if facts.task in _PIPELINES and not facts.is_adapter:
        lines += [
            "",
            "```python",
            "from transformers import pipeline",
            "",
            f'model = pipeline("{facts.task}", "{source}")',
            'print(model("A sentence."))',
            "```",
        ]
    return "\n".join(lines) if len(lines) > 1 else ""


def _results(facts: CardFacts) -> str:
    if not facts.results:
        return ""
    lines = ["## Results", "", "| metric | value |", "|---|---:|"]
    lines += [f"| {name} | {value:.4f} |" for name, value in facts.results.items()]
    return "\n".join(lines + (["", "![loss](loss_curve.png)"] if facts.has_curve else []))


def _training(facts: CardFacts) -> str:
    length = "max_steps" if (facts.settings.get("max_steps") or -1) > 0 else "num_train_epochs"
    shown = [name for name in (*HYPERPARAMETERS, length) if name in facts.settings]
    lines = ["## Training", "", "| setting | value |", "|---|---|"]
    lines += [f"| {name} | {facts.settings[name]} |" for name in shown]
    if facts.notes:
        lines += ["", "| data | |", "|---|---|", *(f"| {what} | {_cell(value)} |" for what, value in facts.notes)]
    made = ", ".join(f"{name} {number}" for name, number in facts.versions.items())
    return "\n".join([*lines, "", f"Made with {made}. All settings of the training are in `training_args.json`."])


def _cell(text: str) -> str:
    """A text that cannot end a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


_PIPELINES = ("text-classification", "token-classification", "question-answering", "fill-mask", "text-generation")
