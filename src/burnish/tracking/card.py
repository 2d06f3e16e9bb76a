"""A draft of a model card, by transformers. The function with `self` becomes a method of the Trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from burnish.core.errors import SettingError


def create_model_card(self: Any, **details: Any) -> None:
    """Writes `README.md` into the output folder: settings, losses and results of the run, on the first process.

    Args:
        details: what the run does not know: language, license, tags, model_name, finetuned_from, tasks, dataset,
            dataset_tags, dataset_args.

    Raises:
        SettingError: the model is not of transformers, so that its card has nothing to say.
    """
    if not self.is_world_process_zero():
        return
    if getattr(self.model, "config", None) is None:
        raise SettingError(
            f"create_model_card describes models of transformers, and {type(self.model).__name__} has no config. Write "
            "its README.md by hand."
        )
    from transformers.modelcard import TrainingSummary

    summary = TrainingSummary.from_trainer(self, **details)
    summary.hyperparameters.pop("distributed_type", None)  # said of any way of running that it does not know by type
    path = Path(self.args.output_dir) / "README.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(summary.to_model_card(), encoding="utf-8")
