"""Settings in groups, as methods that return the arguments: ``args.set_save(steps=100).set_logging(steps=10)``."""

from __future__ import annotations

from typing import TypeVar

from .fields.every import EveryField

Args = TypeVar("Args", bound="Setters")


class Setters(EveryField):
    """A method sets all fields of its group: those that are not given get the default."""

    def set_training(
        self: Args,
        learning_rate: float = 5e-5,
        batch_size: int = 8,
        weight_decay: float = 0,
        num_epochs: float = 3,
        max_steps: int = -1,
        gradient_accumulation_steps: int = 1,
        seed: int = 42,
        activation_checkpointing: bool = False,
        gradient_checkpointing: bool | None = None,
    ) -> Args:
        self.do_train = True
        self.learning_rate = learning_rate
        self.per_device_train_batch_size = batch_size
        self.weight_decay = weight_decay
        self.num_train_epochs = num_epochs
        self.max_steps = max_steps
        self.gradient_accumulation_steps = gradient_accumulation_steps
        self.seed = seed
        self.activation_checkpointing = (
            activation_checkpointing if gradient_checkpointing is None else gradient_checkpointing
        )
        return self

    def set_evaluate(
        self: Args,
        strategy: str = "no",
        steps: float = 500,
        batch_size: int = 8,
        accumulation_steps: int | None = None,
        delay: float | None = None,
        loss_only: bool = False,
    ) -> Args:
        self.eval_strategy = strategy
        self.do_eval = self.eval_strategy != "no"
        self.eval_steps = steps
        self.per_device_eval_batch_size = batch_size
        self.eval_accumulation_steps = accumulation_steps
        self.eval_delay = delay or 0
        self.prediction_loss_only = loss_only
        return self

    def set_testing(self: Args, batch_size: int = 8, loss_only: bool = False) -> Args:
        self.do_predict = True
        self.per_device_eval_batch_size = batch_size
        self.prediction_loss_only = loss_only
        return self

    def set_save(
        self: Args,
        strategy: str = "steps",
        steps: float = 500,
        total_limit: int | None = None,
        on_each_node: bool = False,
    ) -> Args:
        self.save_strategy = strategy
        self.save_steps = steps
        self.save_total_limit = total_limit
        self.save_on_each_node = on_each_node
        return self

    def set_logging(
        self: Args,
        strategy: str = "steps",
        steps: float | None = None,
        report_to: str | list[str] = "none",
        level: str = "passive",
        first_step: bool = True,
        nan_inf_filter: bool = True,
        on_each_node: bool = True,
        replica_level: str = "warning",
    ) -> Args:
        self.logging_strategy = strategy
        self.logging_steps = steps
        self.report_to = report_to
        self.log_level = level
        self.logging_first_step = first_step
        self.logging_nan_inf_filter = nan_inf_filter
        self.log_on_each_node = on_each_node
        self.log_level_replica = replica_level
        return self

    def set_push_to_hub(
        self: Args,
        model_id: str,
        strategy: str = "every_save",
        token: str | None = None,
        private_repo: bool | None = None,
        always_push: bool = False,
        revision: str | None = None,
    ) -> Args:
        self.push_to_hub = True
        self.hub_model_id = model_id
        self.hub_strategy = strategy
        self.hub_token = token
        self.hub_private_repo = private_repo
        self.hub_always_push = always_push
        self.hub_revision = revision
        return self

    def set_optimizer(
        self: Args,
        name: str = "adamw_torch_fused",
        learning_rate: float = 5e-5,
        weight_decay: float = 0,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        args: str | None = None,
    ) -> Args:
        self.optim = name
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.adam_beta1 = beta1
        self.adam_beta2 = beta2
        self.adam_epsilon = epsilon
        self.optim_args = args
        return self

    def set_lr_scheduler(
        self: Args, name: str = "linear", num_epochs: float = 3.0, max_steps: int = -1, warmup_steps: float = 0
    ) -> Args:
        self.lr_scheduler_type = name
        self.num_train_epochs = num_epochs
        self.max_steps = max_steps
        self.warmup_steps = warmup_steps
        return self

    def set_dataloader(
        self: Args,
        train_batch_size: int = 8,
        eval_batch_size: int = 8,
        drop_last: bool = False,
        num_workers: int = 0,
        pin_memory: bool = True,
        persistent_workers: bool = False,
        prefetch_factor: int | None = None,
        multiprocessing_context: str | None = None,
        in_order: bool = True,
        auto_find_batch_size: bool = False,
        ignore_data_skip: bool = False,
        sampler_seed: int | None = None,
    ) -> Args:
        self.per_device_train_batch_size = train_batch_size
        self.per_device_eval_batch_size = eval_batch_size
        self.dataloader_drop_last = drop_last
        self.dataloader_num_workers = num_workers
        self.dataloader_pin_memory = pin_memory
        self.dataloader_persistent_workers = persistent_workers
        self.dataloader_prefetch_factor = prefetch_factor
        self.dataloader_multiprocessing_context = multiprocessing_context
        self.dataloader_in_order = in_order
        self.auto_find_batch_size = auto_find_batch_size
        self.ignore_data_skip = ignore_data_skip
        self.data_seed = sampler_seed
        return self
