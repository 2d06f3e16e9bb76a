"""How rows are read, ordered and loaded."""

from __future__ import annotations

from dataclasses import dataclass, field

from .declare import about

SAMPLING_STRATEGIES = ("random", "sequential", "group_by_length", "batch_rebalance")
START_METHODS = ("fork", "spawn", "forkserver")


@dataclass
class DataFields:
    train_sampling_strategy: str = field(
        default="random", metadata=about("Order of the training examples within a pass.", choices=SAMPLING_STRATEGIES)
    )
    length_column_name: str = field(
        default="length", metadata=about("Column with the length of each row, if there is one.")
    )
    remove_unused_columns: bool = field(
        default=True, metadata=about("Leave out the columns that the model does not accept.")
    )
    label_names: list[str] | None = field(
        default=None, metadata=about("Inputs that hold targets. Not given: as the model says.")
    )
    dataloader_drop_last: bool = field(
        default=False, metadata=about("Leave out the last batch of a pass if it is not full.")
    )
    dataloader_num_workers: int = field(
        default=0, metadata=about("Processes that load data; 0: the training process itself.")
    )
    dataloader_pin_memory: bool = field(
        default=True, metadata=about("Load into page-locked memory, from which copies to a GPU are faster.")
    )
    dataloader_persistent_workers: bool = field(
        default=False, metadata=about("Keep the loading processes from one pass to the next.")
    )
    dataloader_prefetch_factor: int | None = field(
        default=None, metadata=about("Batches that each loading process prepares in advance.")
    )
    dataloader_multiprocessing_context: str | None = field(
        default=None,
        metadata=about("How loading processes start. Not given: as Python does on this system.", choices=START_METHODS),
    )
    split_stream: bool = field(
        default=False,
        metadata=about(
            "Of several processes each reads shards of its own of a stream of `datasets`. A step then has as many rows "
            "of each; which these are depends on the number of processes."
        ),
    )
    dataloader_in_order: bool = field(
        default=True, metadata=about("Take batches in their order, not as they become ready.")
    )
