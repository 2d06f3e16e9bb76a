"""Arguments of the trainer's constructor that have had other names."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from burnish.core.errors import did_you_mean

MEANT = {
    "feature_extractor": "processing_class",
    "image_processor": "processing_class",
    "processor": "processing_class",
    "collate_fn": "data_collator",
    "loss_fn": "compute_loss_func",
    "loss_function": "compute_loss_func",
    "dataset": "train_dataset",
    "training_args": "args",
}
"""Names of other libraries, and of other releases, to what they call. They are suggested, never taken."""


def processing_class_from(older: dict[str, Any], processing_class: Any, known: Iterable[str]) -> Any:
    """The processing class, also under the name it had.

    Raises:
        TypeError: there is an argument of an unknown name.
    """
    if "tokenizer" in older:
        warnings.warn(
            "Trainer(tokenizer=...) is called Trainer(processing_class=...) now.", FutureWarning, stacklevel=3
        )
        tokenizer = older.pop("tokenizer")
        processing_class = tokenizer if processing_class is None else processing_class
    if older:
        names = [name for name in known if name not in ("self", "older")]
        name = next(iter(older))
        hint = f" Did you mean {MEANT[name]!r}?" if name in MEANT else did_you_mean(name, names)
        raise TypeError(f"Trainer takes no argument {name!r}.{hint} It takes: {', '.join(names)}.")
    return processing_class
