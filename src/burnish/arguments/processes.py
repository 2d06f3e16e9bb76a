"""Where this process runs: its device, its number among the others, and what it therefore does.

All of it is asked for when it is needed; making arguments loads no torch and starts nothing.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import platform
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from burnish.core.processes import default_backend, gpu_index, join, launch, turns

from .choices import ParallelMode
from .fields.every import EveryField

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

LEVELS = {
    "detail": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}


class Processes(EveryField):
    """What trainers, callbacks and integrations ask of the arguments about device and processes."""

    @property
    def device(self) -> torch.device:
        """CUDA if there is one (with a launcher the one with the number of this process on its machine, else torch's
        current one), else MPS, else the CPU."""
        import torch

        if not self.use_cpu and torch.cuda.is_available():
            is_launched = self.world_size > 1 or "LOCAL_RANK" in os.environ
            return torch.device("cuda", gpu_index() if is_launched else torch.cuda.current_device())
        if not self.use_cpu and torch.backends.mps.is_available():
            return torch.device("mps")
        return torch.device("cpu")

    @property
    def n_gpu(self) -> int:
        """GPUs that this process uses: 1, or 0 on the CPU."""
        return 0 if self.device.type == "cpu" else 1

    @property
    def train_batch_size(self) -> int:
        """Examples per process and accumulation step. A process uses one device."""
        return self.per_device_train_batch_size

    @property
    def eval_batch_size(self) -> int:
        """Examples per process that are evaluated at once."""
        return self.per_device_eval_batch_size

    @property
    def world_size(self) -> int:
        """Processes of the run, of the process group or as the launcher says in WORLD_SIZE."""
        return launch().count

    @property
    def process_index(self) -> int:
        """Number of this process in the run, from 0, of the process group or as the launcher says in RANK."""
        return launch().index

    @property
    def local_process_index(self) -> int:
        """Number of this process on its machine, from 0, as the launcher says in LOCAL_RANK."""
        return launch().local_index

    @property
    def parallel_mode(self) -> ParallelMode:
        return ParallelMode.DISTRIBUTED if self.world_size > 1 else ParallelMode.NOT_PARALLEL

    @property
    def should_log(self) -> bool:
        """Whether this process logs: the first one, of each machine or of the run."""
        return (self.local_process_index if self.log_on_each_node else self.process_index) == 0

    @property
    def should_save(self) -> bool:
        """Whether this process writes files: the first one, of the run or of each machine."""
        return (self.local_process_index if self.save_on_each_node else self.process_index) == 0

    @property
    def place_model_on_device(self) -> bool:
        """Whether the trainer moves the model to the device. A subclass may say no."""
        return True

    @property
    def dispatches_batches(self) -> bool:
        """Whether the first process reads a stream for all (`accelerator_config`: `dispatch_batches`)."""
        config = self.accelerator_config
        return self.world_size > 1 and isinstance(config, dict) and bool(config.get("dispatch_batches"))

    @property
    def mixed_precision(self) -> str:
        """ "no", "fp16" or "bf16"."""
        return "fp16" if self.fp16 else "bf16" if self.bf16 else "no"

    @property
    def ddp_timeout_delta(self) -> timedelta:
        return timedelta(seconds=self.ddp_timeout)

    def get_process_log_level(self) -> int:
        """The level of this process as a number of `logging`; "passive" is the level that burnish has already."""
        name = self.log_level if self.should_log else self.log_level_replica
        return LEVELS.get(name, logging.getLogger("burnish").getEffectiveLevel())

    def get_warmup_steps(self, num_training_steps: int) -> int:
        """Steps of the warmup in a run of `num_training_steps`: a share of the run is rounded up."""
        if self.warmup_steps >= 1:
            return int(self.warmup_steps)
        return math.ceil(self.warmup_steps * num_training_steps)

    @contextlib.contextmanager
    def main_process_first(self, local: bool = True, desc: str = "work") -> Iterator[None]:
        """The first process (of this machine where `local`) runs the block, then the others: to fill a cache once,
        however long it takes. The processes are brought together for it where they are not yet."""
        if self.world_size == 1 or not join(self.ddp_backend or default_backend(self.use_cpu), self.ddp_timeout_delta):
            yield
            return
        is_first = (self.local_process_index if local else self.process_index) == 0
        wait, announce = turns(platform.node() if local else "")
        try:
            if not is_first:
                logger.debug("process %d waits for the first one: %s", self.process_index, desc)
                wait()
            yield
        finally:
            if is_first:
                announce()
