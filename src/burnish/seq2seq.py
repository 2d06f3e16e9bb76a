"""`Seq2SeqTrainer`: a trainer whose evaluation and prediction may write text."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .core.errors import OutOfMemoryError
from .core.randomness import kept
from .core.types import EvalLoopOutput, PredictionOutput
from .data.table import spread
from .evaluation.decoded import decoded
from .evaluation.judge import Judge
from .evaluation.names import prefixed
from .evaluation.prediction import EvalPrediction
from .generation.decoding import decoding_config, pad_id_of, settings_from
from .generation.library import generated
from .generation.prompts import are_texts, cut_rows, filled_up, inputs_to_read, with_pads
from .generation.writer import AT_ONCE, Request, Writer
from .generation.written_texts import in_words, text_file, write_texts
from .loop.memory import attempted
from .run.hooks import overridden
from .run.judging import reading_for
from .run.prompts import ToWrite, prompts_of_column, prompts_to_write
from .trainer import Trainer

logger = logging.getLogger(__name__)


class Seq2SeqTrainer(Trainer):
    """A `Trainer` that generates in `evaluate` and `predict` where `args.predict_with_generate` is set.

    Encoder-decoder models read the inputs and write. Decoder-only models read the prompt, the part of a row before its
    first target (or a column, `generation_prompt_column`), and what they write after it is returned. Predictions and
    labels hold ids that a tokenizer can decode: shorter texts are filled up with padding, not with -100.

    The loss is that of an ordinary evaluation. Of large evaluation sets, texts are written for a sample of rows
    (`generation_max_rows`); `predict` writes one for every row. With a tokenizer as `processing_class`, the texts are
    written to `texts/` in the output folder, and a few are shown.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._generation: dict[str, Any] = {}
        self._dataset: Any = None
        self._rows_seen = 0
        self._held_writer: Writer | None = None
        super().__init__(*args, **kwargs)

    def evaluate(
        self,
        eval_dataset: Any = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
        **gen_kwargs: Any,
    ) -> dict[str, float]:
        """As `Trainer.evaluate`; further arguments go to `generate`."""
        with self._generating(eval_dataset if eval_dataset is not None else self.eval_dataset, gen_kwargs):
            return super().evaluate(eval_dataset, ignore_keys, metric_key_prefix)

    def predict(
        self,
        test_dataset: Any,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "test",
        **gen_kwargs: Any,
    ) -> PredictionOutput:
        """As `Trainer.predict`; further arguments go to `generate`."""
        with self._generating(test_dataset, gen_kwargs):
            return super().predict(test_dataset, ignore_keys, metric_key_prefix)

    def evaluation_loop(
        self,
        dataloader: Any,
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput:
        """As `Trainer.evaluation_loop`. Where texts are written, the loss of all rows comes first, and then the texts
        of all batches together, unless a user's own code sees the batches."""
        self._rows_seen = 0
        if not self.generates or self.settings.prediction_loss_only:
            return super().evaluation_loop(
                dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix
            )
        most = None if description == "Prediction" else self._setting("generation_max_rows", None)
        wanted = None if self._sees_batches() else self._to_write(dataloader, most)
        if wanted is None:
            return super().evaluation_loop(dataloader, description, False, ignore_keys, metric_key_prefix)
        found = super().evaluation_loop(dataloader, description, True, ignore_keys, metric_key_prefix)
        predictions, labels, metrics = self._texts(wanted, found.num_samples, metric_key_prefix)
        return EvalLoopOutput(predictions, labels, {**metrics, **(found.metrics or {})}, found.num_samples)

    def prediction_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
        **gen_kwargs: Any,
    ) -> tuple[torch.Tensor | None, Any, Any]:
        """Mean loss, generated ids and labels of a batch."""
        if not self.generates:
            return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)
        loss = None
        if any(inputs.get(name) is not None for name in self.label_names):  # otherwise a decoder has nothing to read
            loss, _, _ = super().prediction_step(model, inputs, True, ignore_keys)
        if prediction_loss_only:
            return loss, None, None
        written, labels = self._written_for_batch(inputs, self._decoding() | gen_kwargs)
        return loss, written, labels

    @property
    def generates(self) -> bool:
        """Whether evaluation and prediction write text."""
        return bool(self._setting("predict_with_generate", False))

    @property
    def output_padding(self) -> int:
        return pad_id_of(self.model, self.processing_class) if self.generates else super().output_padding

    def _setting(self, name: str, default: Any) -> Any:
        """A setting of `Seq2SeqTrainingArguments`; plain `TrainingArguments` serve too."""
        return getattr(self.settings, name, default)

    @contextlib.contextmanager
    def _generating(self, dataset: Any, gen_kwargs: dict[str, Any]) -> Iterator[None]:
        """What `evaluate` is given holds for each dataset of a dict."""
        before = self._generation, self._dataset
        self._generation, self._dataset = gen_kwargs or self._generation, dataset
        try:
            yield
        finally:
            self._generation, self._dataset = before

    def _decoding(self) -> dict[str, Any]:
        """Arguments of `generate`, those of the call before those of the settings."""
        settings = settings_from(
            self._setting("generation_max_length", None),
            self._setting("generation_num_beams", None),
            self._generation,
            self.facts.is_encoder_decoder,
        )
        config = decoding_config(self._setting("generation_config", None))
        return settings if config is None else {"generation_config": config, **settings}

    def _writer(self) -> Writer:
        """Made once for a model, which is tried once."""
        if self._held_writer is None or self._held_writer.model is not self.model:
            at_once = AT_ONCE if self.engine.device.type == "cpu" else self.settings.eval_batch_size
            self._held_writer = Writer(self.model, self.facts, at_once)
        return self._held_writer

    def _write(self, prompts: list[list[int]], rows: list[int], decoding: dict[str, Any]) -> list[list[int]]:
        """The new tokens for each prompt; fewer at once where memory runs out. Raises `OutOfMemoryError`."""
        writer = self._writer()
        request = Request(prompts, rows, decoding, self.processing_class, self.output_padding, seed=self.settings.seed)
        with kept(), self.compute_loss_context_manager(), self.engine.in_turns(self.model):
            while True:
                written, words = attempted(self.engine, lambda: writer.write(request))
                if written is not None:
                    return written
                self.engine.free_memory()
                if writer.at_once == 1 or self.engine.lockstep:  # the others do not begin again
                    raise OutOfMemoryError(
                        f"Memory ran out at {writer.at_once} texts. Set a smaller generation_max_length, or "
                        f"per_device_eval_batch_size. ({words})"
                    )
                writer.at_once //= 2
                logger.warning("Memory ran out: at most %d texts are written at once from now on.", writer.at_once)

    def _written_for_batch(self, inputs: dict[str, Any], decoding: dict[str, Any]) -> tuple[torch.Tensor, Any]:
        """What is written for a batch, and its labels, both without -100."""
        pad, labels = self.output_padding, inputs.get("labels")
        if not are_texts(inputs):
            given = self._prepare_inputs(inputs_to_read(inputs, self.facts.is_encoder_decoder, pad))
            with self.compute_loss_context_manager(), self.engine.in_turns(self.model):
                ids = generated(self.model, given, self.facts.is_encoder_decoder, pad, **decoding)
            return ids, None if labels is None else with_pads(labels, pad)
        cuts = cut_rows(inputs, self.facts.is_encoder_decoder)
        rows = list(range(self._rows_seen, self._rows_seen + len(cuts)))
        self._rows_seen += len(cuts)
        written = self._write([cut.prompt or [self._beginning()] for cut in cuts], rows, decoding)
        references = [cut.reference for cut in cuts if cut.reference is not None]
        return filled_up(written, pad, "right")[0], filled_up(references, pad, "right")[0] if references else None

    def _beginning(self) -> int:
        """What is written on where there is no prompt."""
        config = getattr(self.model, "generation_config", None)
        names = ("bos_token_id", "eos_token_id")
        known = [getattr(holder, name, None) for name in names for holder in (self.processing_class, config)]
        return next((token for token in known if isinstance(token, int)), self.output_padding)

    def _sees_batches(self) -> bool:
        """Whether a user's own code is to be called with each batch, or wants what is known of batches alone."""
        wanted = set(self.settings.include_for_metrics or ())
        return (
            overridden(self, "prediction_step")
            or self.preprocess_logits_for_metrics is not None
            or self.settings.batch_eval_metrics
            or "loss" in wanted
        )

    def _to_write(self, dataloader: Any, most: int | None) -> ToWrite | None:
        """The rows to write texts for; None where they are no texts."""
        wanted = prompts_to_write(self, dataloader, most or None)
        column = self._setting("generation_prompt_column", None)
        if wanted is None or column is None:
            return wanted
        dataset = self.eval_dataset[self._dataset] if isinstance(self._dataset, str) else self._dataset
        return prompts_of_column(wanted, dataset, column, self.processing_class)

    def _texts(self, wanted: ToWrite, total: int | None, prefix: str) -> tuple[Any, Any, dict[str, Any]]:
        """Predictions, labels and metrics of the rows that texts are written for."""
        prompts = [cut.prompt or [self._beginning()] for cut in wanted.cuts]
        self._warn_of_empty(wanted)
        num_texts = self.engine.sum_over_processes(len(prompts))
        self.callback_handler.fire("on_generate_begin", num_texts=num_texts, num_rows=total)
        own = (
            wanted.rows,
            prompts,
            [cut.reference for cut in wanted.cuts],
            self._write(prompts, wanted.rows, self._decoding()),
        )
        parts = self.engine.processes.all_of(list(zip(*own, strict=True)))
        texts = sorted((text for part in parts for text in part), key=lambda text: text[0])
        rows, prompts, references, written = map(list, zip(*texts, strict=True)) if texts else ([], [], [], [])
        has_labels = bool(texts) and all(reference is not None for reference in references)
        arrays = [self._filled(part) for part in (written, references if has_labels else None, prompts)]
        metrics: dict[str, Any] = {"gen_len": sum(map(len, written)) / max(1, len(written))}
        if self.compute_metrics is not None and has_labels:
            inputs = arrays[2] if "inputs" in (self.settings.include_for_metrics or ()) else None
            metrics |= self._judged_together(EvalPrediction(arrays[0], arrays[1], inputs=inputs))
        self._tell(rows, [prompts, references if has_labels else None, written], prefix)
        return arrays[0], arrays[1], prefixed(metrics, prefix)

    def _judged_together(self, prediction: EvalPrediction) -> dict[str, Any]:
        judge = Judge(self.compute_metrics, reading_for(self))
        judge.update(prediction)
        return judge.compute(prediction)

    def _filled(self, rows: list[list[int]] | None) -> Any:
        return None if rows is None else filled_up(rows, self.output_padding, "right")[0].numpy()

    def _warn_of_empty(self, wanted: ToWrite) -> None:
        empty = sum(not cut.prompt for cut in wanted.cuts)
        if empty:
            logger.warning(
                "%d of %d rows have no prompt: every token is a target. Their texts are written from the first token "
                "on. Set the labels of the prompt to -100, or name a column with generation_prompt_column.",
                empty, len(wanted.cuts),
            )  # fmt: skip

    def _tell(self, rows: list[int], ids: list[Any], prefix: str) -> None:
        """Writes the texts to a file, and shows a few."""
        if not self.is_world_process_zero() or not rows or getattr(self.processing_class, "batch_decode", None) is None:
            return
        texts = in_words(rows, *(part and decoded(part, self.processing_class) for part in ids))
        path = text_file(Path(str(self.settings.output_dir)), prefix, self.state.global_step)
        write_texts(path, texts)
        shown = spread(len(texts), self._setting("generation_texts_shown", 3)).tolist()
        self.callback_handler.fire("on_generate", texts=[texts[i] for i in shown], path=path)
