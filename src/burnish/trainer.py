"""`Trainer`: holds the parts of a run, and keeps the hooks that users know."""

from __future__ import annotations

import contextlib
import inspect
import logging
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .arguments.foreign import own_settings
from .arguments.training_arguments import TrainingArguments, snapshot
from .callbacks.handler import CallbackHandler
from .callbacks.memory import EmptyCacheCallback
from .checkpoint import weights
from .core.errors import SettingError
from .core.loss_terms import LossTerms
from .core.processes import told_to_all
from .core.progress import TrainerControl, TrainerState
from .core.randomness import MODEL_INIT, kept, seed_all, seed_for
from .core.types import IGNORED_LABEL, EvalLoopOutput, PredictionOutput, TrainOutput
from .data.checks_model import check_is_module, check_model, check_output_dir
from .data.collators import default_collator_for
from .engines.choice import engine_for
from .loop.signals import StopRequests
from .models.contract import facts_of
from .objectives.objective import LossOf
from .optim.groups import decay_parameter_names
from .optim.optimizers import build_optimizer, optimizer_class_and_kwargs
from .optim.schedulers import make_scheduler
from .run import evaluation, hub, inspection, judging
from .run.data import batch_loader
from .run.given_parts import callable_or_none, list_of, pair_of
from .run.hooks import has_own_loss, names, needs_argument, warn_of_what_is_not_used
from .run.lazy_loader import LazyLoader
from .run.length_order import Tried
from .run.loss import counted, loss_and_outputs, objective_for
from .run.older_names import processing_class_from
from .run.recording import Recording
from .run.training import made_ready, prepare
from .run.uploads import Uploads
from .tracking import card, results
from .tracking.console import ConsoleCallback
from .tracking.jsonl import JsonLinesCallback
from .tracking.levels import message_level
from .tracking.reporters import reporter_callbacks

logger = logging.getLogger(__name__)


class Trainer:
    """Trains, evaluates and predicts, with the arguments and methods of `transformers.Trainer`.

    Args:
        model: a transformers model or any `nn.Module` that returns a loss; or `model_init`, which makes one.
        args: the settings; `TrainingArguments("tmp_trainer")` by default. Never written to.
        data_collator: a list of examples to a batch; by default one that pads.
        train_dataset: map-style (`__getitem__` and `__len__`) or iterable.
        eval_dataset: the same, or a dict of several, each evaluated under its name.
        processing_class: tokenizer or processor; pads by default, and is saved with the model.
        model_init: called without arguments, or with a trial, before each `train()`.
        compute_loss_func: (outputs, labels, num_items_in_batch) to a loss: a mean, or a sum over `num_items_in_batch`;
            or to a dict of it as "loss" and further terms, which are logged.
        compute_metrics: names of metrics (docs/metrics.md), functions of an `EvalPrediction` to a dict, or both.
        callbacks: `TrainerCallback`s, of burnish or of transformers.
        optimizers: an optimizer and a scheduler; either may be None.
        optimizer_cls_and_kwargs: a class of optimizer and its arguments, in place of `args.optim`.
        preprocess_logits_for_metrics: (logits, labels) to what is gathered for `compute_metrics`.

    Attributes:
        model: the model itself; `model_wrapped` as it is called, compiled for example.
        state, control: the progress of the run, and what is asked of it next.
        current_gradient_accumulation_steps: by what an overridden `training_step` divides the mean loss of its batch:
            the targets of the step over those of the batch, which is the number of batches where these are alike.
    """

    log_metrics = results.log_metrics
    save_metrics = results.save_metrics
    save_state = results.save_state
    metrics_format = staticmethod(results.metrics_format)
    create_model_card = card.create_model_card
    init_hf_repo, push_to_hub, hub_model_id = hub.init_hf_repo, hub.push_to_hub, hub.hub_model_id
    floating_point_ops = inspection.floating_point_ops
    num_examples = inspection.num_examples
    num_tokens = staticmethod(inspection.num_tokens)
    get_total_train_batch_size = inspection.get_total_train_batch_size
    get_num_trainable_parameters = inspection.get_num_trainable_parameters
    get_learning_rates = inspection.get_learning_rates
    get_optimizer_group = inspection.get_optimizer_group

    def __init__(
        self,
        model: nn.Module | None = None,
        args: TrainingArguments | None = None,
        data_collator: Callable[[list[Any]], Any] | None = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: Any = None,
        model_init: Callable[..., nn.Module] | None = None,
        compute_loss_func: Callable[..., torch.Tensor] | None = None,
        compute_metrics: Any = None,
        callbacks: list[Any] | None = None,
        optimizers: tuple[torch.optim.Optimizer | None, Any] = (None, None),
        optimizer_cls_and_kwargs: tuple[type[torch.optim.Optimizer], dict[str, Any]] | None = None,
        preprocess_logits_for_metrics: Callable[[Any, Any], Any] | None = None,
        **older: Any,
    ) -> None:
        self.args = own_settings(args)
        self._held: TrainingArguments | None = None
        self._num_training_steps, self.recording, self.uploads = 0, Recording(), Uploads()
        self.current_gradient_accumulation_steps = 1.0
        known = inspect.signature(Trainer.__init__).parameters
        self.processing_class = processing_class_from(older, processing_class, known)
        self.model_init = model_init
        self.train_dataset, self.eval_dataset = train_dataset, eval_dataset
        self.compute_loss_func, self.compute_metrics = compute_loss_func, judging.checked(compute_metrics)
        self.preprocess_logits_for_metrics = preprocess_logits_for_metrics
        self.given_optimizers = self.optimizer, self.lr_scheduler = pair_of(optimizers)
        self.optimizer_cls_and_kwargs = optimizer_cls_and_kwargs
        self.engine = engine_for(self.args)
        self.engine.refuse_given(optimizer_cls_and_kwargs or self.optimizer, self.lr_scheduler)
        if (model is None) == (model_init is None):
            raise SettingError("Trainer takes either `model` or `model_init`, and exactly one of the two.")
        self._take_model(model if model is not None else self.call_model_init())
        own = callable_or_none(data_collator)
        self.data_collator = own or default_collator_for(self.processing_class, self.facts.pad_token_id)
        self.state, self.control = TrainerState().on(self.engine.processes), TrainerControl()
        self.is_in_train = False
        warn_of_what_is_not_used(self)
        self.callback_handler = self._make_handler(list_of(callbacks))
        self.callback_handler.fire("on_init_end")

    # ------------------------------------------------------------------ parts

    @property
    def settings(self) -> TrainingArguments:
        """The settings in force: those that `train()` found when it began, or the user's object."""
        return self._held or self.args

    @property
    def output_padding(self) -> int:
        """What predictions and labels of unequal length are padded with."""
        return IGNORED_LABEL

    @property
    def accelerator(self) -> Any:
        """An `accelerate.Accelerator` on the same device, for overridden methods that use one."""
        return self.engine.accelerator

    @property
    def tokenizer(self) -> Any:
        warnings.warn("Trainer.tokenizer is called Trainer.processing_class now.", FutureWarning, stacklevel=2)
        return self.processing_class

    def _take_model(self, model: nn.Module) -> None:
        check_is_module(model)
        self.engine.meet(model)
        gets_weights = self.engine.divides and self.engine.process_index > 0
        check_model(model, facts_of(model), has_own_loss(self), gets_weights)
        is_placed = getattr(model, "hf_device_map", None) is not None or getattr(model, "is_quantized", False)
        if self.args.place_model_on_device and not (is_placed or self.engine.divides):
            model.to(self.engine.device)
        self.model = self.model_wrapped = model
        self.facts = facts_of(model)
        self.label_names = list(self.args.label_names or self.facts.label_names)
        self.loss_terms = LossTerms()
        self.objective: LossOf = objective_for(self)
        self.trims = True
        self.tried: Tried | None = None

    def _make_handler(self, callbacks: list[Any]) -> CallbackHandler:
        ours = (JsonLinesCallback(), ConsoleCallback(), EmptyCacheCallback())
        defaults = [*reporter_callbacks(self.args.report_to), *ours]
        handler = CallbackHandler([*defaults, *callbacks], self.model, self.processing_class, *self.given_optimizers)
        handler.args, handler.state, handler.control = self.args, self.state, self.control
        return handler

    def call_model_init(self, trial: Any = None) -> nn.Module:
        """A model from `model_init`, with weights drawn from the seed of the run."""
        assert self.model_init is not None
        with kept():
            seed_all(seed_for(self.settings.seed, MODEL_INIT))
            wants_trial = needs_argument(self.model_init) or names(self.model_init, "trial")
            model = self.model_init(trial) if wants_trial else self.model_init()
        if model is None:
            raise SettingError("model_init returned None; it must return a model.")
        return model

    # ------------------------------------------------------------------ training

    def train(
        self,
        resume_from_checkpoint: str | bool | None = None,
        trial: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
        **older: Any,
    ) -> TrainOutput:
        """Trains to the end, from the start or from a checkpoint.

        Args:
            resume_from_checkpoint: a checkpoint, True for the newest good one of this run, "auto" for the same or a
                fresh start; `args.resume_from_checkpoint` by default.
            trial: given to `model_init`.
            ignore_keys_for_eval: outputs of the model that evaluations leave out.

        Raises:
            DataError: a row cannot be trained on; found before the first step where it can be.
            CheckpointError: the checkpoint is missing, damaged, or of other data; at the end, none could be written.
            HubError: what is saved is to be uploaded, and cannot be; found before the first step.
            NonFiniteError: a loss or gradient is not finite, and `nonfinite_policy` is "stop".
        """
        resume = older.pop("model_path", resume_from_checkpoint)
        if older:
            raise TypeError(f"train() takes no argument {next(iter(older))!r}.")
        with kept(), self._begun(trial) as (args, ready), StopRequests() as stop:
            loop = prepare(self, args, resume, ready, stop, ignore_keys_for_eval)
            self.is_in_train = True
            begun = results.Begun.at(self.state)
            self.callback_handler.train_dataloader = LazyLoader(self.get_train_dataloader)
            self.callback_handler.fire("on_train_begin")
            if args.eval_on_start and begun.steps == 0:
                self.evaluate(ignore_keys=ignore_keys_for_eval)
            loop.run()
            self._load_best(args)
            metrics = begun.metrics(self.state)
            self.log(metrics)
            self.callback_handler.fire("on_train_end")
            loop.actions.refuse_unsaved()
            loop.actions.finish_uploads(stop)
        metrics |= begun.efficiency(self.state, loop.seconds)
        return TrainOutput(self.state.global_step, self.state.train_loss, metrics)

    @contextlib.contextmanager
    def _begun(self, trial: Any) -> Iterator[tuple[TrainingArguments, contextlib.ExitStack]]:
        """A run with settings that stay what they are, and a model made ready; all of it taken back at the end."""
        args = self._held = snapshot(self.args)
        try:
            check_output_dir(str(args.output_dir))
            self.engine = engine_for(args)
            if self.model_init is not None:
                self._take_model(self.call_model_init(trial))
                self.callback_handler.model = self.model
            else:
                self.engine.meet(self.model)
            processes = self.engine.processes
            with told_to_all(processes), message_level(args), made_ready(self, args) as ready:
                yield args, ready
        except BaseException:
            self.callback_handler.fire("on_exception")
            raise
        finally:
            self._held, self.is_in_train, self.model_wrapped = None, False, self.model

    def _load_best(self, args: TrainingArguments) -> None:
        best = self.state.best_model_checkpoint
        self.engine.finished()  # from here on the model is plain, and whole
        if args.load_best_model_at_end and best is not None:
            weights.load_weights(self.model, best)
            logger.info("Loaded the best weights: %s (%s).", best, self.state.best_metric)
        elif args.load_best_model_at_end:
            logger.warning("No evaluation was the best: the weights are those of step %d.", self.state.global_step)

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: torch.Tensor | int | None = None
    ) -> torch.Tensor:
        """Loss and gradient of one batch. Returns its part of the step's loss, detached."""
        model.train()
        inputs = self._prepare_inputs(inputs)
        with self.compute_loss_context_manager():
            if num_items_in_batch is None:
                loss = self.compute_loss(model, inputs) / self.current_gradient_accumulation_steps
            else:
                batch = counted(self, inputs)
                number = float(num_items_in_batch)
                loss = self.engine.compute(model, lambda inner: self.objective.step_loss(inner, batch, number))
        self.engine.backward(loss)
        return loss.detach()

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        """The loss of a batch: a mean, or with `num_items_in_batch` its sum over that number."""
        loss, outputs = loss_and_outputs(self, model, inputs, num_items_in_batch)
        return (loss, outputs) if return_outputs else loss

    def compute_loss_context_manager(self) -> contextlib.AbstractContextManager[Any]:
        """The precision in which losses are computed, in training or in evaluation."""
        args = self.settings
        of_evaluation = "bf16" if args.bf16_full_eval else "fp16" if args.fp16_full_eval else None
        return self.engine.autocast(None if self.model.training else of_evaluation)

    autocast_smart_context_manager = compute_loss_context_manager

    def _prepare_inputs(self, inputs: Any) -> Any:
        return self.engine.to_device(inputs)

    # ------------------------------------------------------------------ optimizer and schedule

    def create_optimizer_and_scheduler(self, num_training_steps: int) -> None:
        """Sets `self.optimizer` and `self.lr_scheduler` where they are None."""
        self._num_training_steps = num_training_steps
        made = self.create_optimizer()
        # an override may only return it
        self.optimizer = self.engine.taken(made if self.optimizer is None else self.optimizer, num_training_steps)
        made = self.create_scheduler(num_training_steps=num_training_steps, optimizer=self.optimizer)
        self.lr_scheduler = made if self.lr_scheduler is None else self.lr_scheduler

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """The optimizer of the run, made of `args.optim` or `optimizer_cls_and_kwargs`."""
        args = self.settings
        if self.optimizer is None and self.optimizer_cls_and_kwargs is not None:
            kind, kwargs = self.optimizer_cls_and_kwargs
            self.optimizer = kind([p for p in self.model.parameters() if p.requires_grad], **kwargs)
        elif self.optimizer is None:
            self.optimizer = build_optimizer(
                args.optim,
                model := model or self.model,
                weight_decay=args.weight_decay,
                decaying=self.get_decay_parameter_names(model),
                warmup_steps=args.get_warmup_steps(self._num_training_steps),
                **_optimizer_settings(args),
            )
        return self.optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None) -> Any:
        """The schedule of the learning rate over `num_training_steps` updates."""
        if self.lr_scheduler is None and not self.engine.has_own_schedule:
            args, optimizer = self.settings, optimizer or self.optimizer
            assert optimizer is not None, "create_optimizer comes first"
            self.lr_scheduler = make_scheduler(
                args.lr_scheduler_type,
                optimizer,
                warmup_steps=args.get_warmup_steps(num_training_steps),
                total_steps=num_training_steps,
                kwargs=args.lr_scheduler_kwargs,
            )
        return self.lr_scheduler

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Names of the parameters that weight decay shrinks."""
        return decay_parameter_names(model)

    @staticmethod
    def get_optimizer_cls_and_kwargs(args: TrainingArguments, model: Any = None) -> tuple[Any, dict[str, Any]]:
        """The class of `args.optim` and its arguments."""
        return optimizer_class_and_kwargs(args.optim, **_optimizer_settings(args))

    def _get_learning_rate(self) -> float:
        assert self.optimizer is not None
        return float(self.optimizer.param_groups[0]["lr"])

    # ------------------------------------------------------------------ loaders

    def get_train_dataloader(self) -> Any:
        """A loader of the first pass's batches, in plan order. Training itself reads steps; override this to train on
        the batches of a loader of your own."""
        return batch_loader(self, self.settings)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """A loader of the evaluation's batches, in dataset order."""
        dataset = evaluation.dataset_to_evaluate(self, eval_dataset)
        return evaluation.eval_loader(self, dataset, self.settings, "eval_dataset")

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        """A loader of the batches to predict, in dataset order."""
        return evaluation.eval_loader(self, test_dataset, self.settings, "test_dataset")

    # ------------------------------------------------------------------ evaluation and prediction

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Loss and metrics of the evaluation data; of a dict, each with its name in the prefix."""
        dataset = self.eval_dataset if eval_dataset is None else eval_dataset
        if isinstance(dataset, Mapping):
            parts = [(f"{metric_key_prefix}_{name}", part) for name, part in evaluation.datasets_of(dataset)]
            return {name: value for key, part in parts for name, value in self.evaluate(part, ignore_keys, key).items()}
        with kept(), told_to_all(self.engine.processes):
            batches = evaluation.batches_to_evaluate(self, eval_dataset, metric_key_prefix)
            metrics = self._judged(batches, ignore_keys, metric_key_prefix).metrics or {}
        self.log(metrics)
        self.callback_handler.fire("on_evaluate", metrics=metrics)
        return metrics

    def predict(
        self, test_dataset: Any, ignore_keys: list[str] | None = None, metric_key_prefix: str = "test"
    ) -> PredictionOutput:
        """Predictions and labels of a dataset, in its order, and metrics where there are labels."""
        with kept(), told_to_all(self.engine.processes):
            batches = evaluation.batches_to_predict(self, test_dataset)
            found = self._judged(batches, ignore_keys, metric_key_prefix, "Prediction")
        self.callback_handler.fire("on_predict", metrics=found.metrics)
        return PredictionOutput(found.predictions, found.label_ids, found.metrics)

    def _judged(
        self, loader: Any, ignore_keys: list[str] | None, prefix: str, description: str = "Evaluation"
    ) -> EvalLoopOutput:
        """The evaluation loop over a loader, with its speed among the metrics."""
        started = time.time()
        self.callback_handler.eval_dataloader = loader
        loss_only = None if description == "Prediction" or self.compute_metrics is not None else True
        with message_level(self.settings):
            found = self.evaluation_loop(loader, description, loss_only, ignore_keys, metric_key_prefix=prefix)
        speed = results.speed_metrics(prefix, started, found.num_samples, evaluation.length_of(loader))
        return found._replace(metrics={**(found.metrics or {}), **speed})

    def evaluation_loop(
        self,
        dataloader: Any,
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput:
        """Puts the batches of a loader through the model, each row once, and gathers what comes out."""
        loss_only = self.settings.prediction_loss_only if prediction_loss_only is None else prediction_loss_only
        return evaluation.evaluated(self, dataloader, description, loss_only, ignore_keys, metric_key_prefix)

    def prediction_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
    ) -> tuple[torch.Tensor | None, Any, Any]:
        """Mean loss, logits and labels of a batch; None for what there is not."""
        return evaluation.computed(self, model, inputs, prediction_loss_only, ignore_keys)

    # ------------------------------------------------------------------ logging and saving

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Adds numbers to the history of the run, and makes them known to the callbacks."""
        if self._held is not None and not self.is_in_train:
            return  # a user's loss is being tried out: what it logs is not of the run
        logs["epoch"] = self.state.epoch  # into the dict itself: `evaluate` and `train` return it too
        if self.settings.include_num_input_tokens_seen != "no":
            logs["num_input_tokens_seen"] = self.state.num_input_tokens_seen
        self.state.log_history.append({**logs, "step": self.state.global_step})
        self.callback_handler.fire("on_log", logs=logs)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Writes a folder that `from_pretrained` loads: weights, config, tokenizer, card. On the first process. With
        `push_to_hub`, and not while it trains, the model is uploaded too."""
        hub.save_model(self, Path(output_dir or str(self.settings.output_dir)), _internal_call)

    def is_world_process_zero(self) -> bool:
        return self.engine.process_index == 0

    def is_local_process_zero(self) -> bool:
        return self.engine.processes.local_index == 0

    # ------------------------------------------------------------------ callbacks

    def add_callback(self, callback: Any) -> None:
        """Adds a callback: a class or an instance."""
        self.callback_handler.add_callback(callback)

    def pop_callback(self, callback: Any) -> Any:
        """Takes out a callback and returns it; a class stands for its first instance."""
        return self.callback_handler.pop_callback(callback)

    def remove_callback(self, callback: Any) -> None:
        """Takes out a callback; a class stands for its first instance."""
        self.callback_handler.remove_callback(callback)

    # ------------------------------------------------------------------ not there yet

    def hyperparameter_search(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            "burnish has no hyperparameter_search yet. Give `model_init` and call train() in a loop over settings, or "
            "from an objective of optuna."
        )


def _optimizer_settings(args: TrainingArguments) -> dict[str, Any]:
    return {
        "learning_rate": args.learning_rate,
        "betas": (args.adam_beta1, args.adam_beta2),
        "eps": args.adam_epsilon,
        "optim_args": args.optim_args,
    }
