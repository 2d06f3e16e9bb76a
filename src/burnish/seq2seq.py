"""`Seq2SeqTrainer`: a trainer whose evaluation and prediction may write text."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .core.types import PredictionOutput
from .generation.decoding import decoding_config, generated, pad_id_of, settings_from
from .generation.prompts import with_pads
from .trainer import Trainer


class Seq2SeqTrainer(Trainer):
    """A `Trainer` that generates in `evaluate` and `predict` where `args.predict_with_generate` is set.

    Encoder-decoder models read the inputs and write. Decoder-only models read the prompt, the part of a row before its
    first target, and what they write after it is returned. Predictions and labels hold ids that a tokenizer can decode:
    shorter texts are filled up with padding, not with -100.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._generation: dict[str, Any] = {}

    def evaluate(
        self,
        eval_dataset: Any = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
        **gen_kwargs: Any,
    ) -> dict[str, float]:
        """As `Trainer.evaluate`; further arguments go to `generate`."""
        self._generation = gen_kwargs
        return super().evaluate(eval_dataset, ignore_keys, metric_key_prefix)

    def predict(
        self,
        test_dataset: Any,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "test",
        **gen_kwargs: Any,
    ) -> PredictionOutput:
        """As `Trainer.predict`; further arguments go to `generate`."""
        self._generation = gen_kwargs
        return super().predict(test_dataset, ignore_keys, metric_key_prefix)

    def prediction_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
        **gen_kwargs: Any,
    ) -> tuple[torch.Tensor | None, Any, Any]:
        """Mean loss, generated ids and labels of a batch."""
        if prediction_loss_only or not self.generates:
            return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)
        loss = None
        if any(inputs.get(name) is not None for name in self.label_names):  # otherwise a decoder has nothing to read
            loss, _, _ = super().prediction_step(model, inputs, True, ignore_keys)
        inputs = self._prepare_inputs(inputs)
        decoding = {**self._decoding(), **gen_kwargs}
        with self.compute_loss_context_manager():
            written = generated(self.model, inputs, self.facts.is_encoder_decoder, self.output_padding, **decoding)
        labels = inputs.get("labels")
        return loss, written, None if labels is None else with_pads(labels, self.output_padding)

    @property
    def generates(self) -> bool:
        """Whether evaluation and prediction write text."""
        return bool(getattr(self.settings, "predict_with_generate", False))

    @property
    def output_padding(self) -> int:
        return pad_id_of(self.model, self.processing_class) if self.generates else super().output_padding

    def _decoding(self) -> dict[str, Any]:
        """Arguments of `generate`, those of the call before those of the settings."""
        args = self.settings
        settings = settings_from(
            getattr(args, "generation_max_length", None), getattr(args, "generation_num_beams", None), self._generation
        )
        config = decoding_config(getattr(args, "generation_config", None))
        return settings if config is None else {"generation_config": config, **settings}
