"""Ids back into texts."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from burnish.core.errors import SettingError


def decoded(ids: Any, processing_class: Any, skip_special_tokens: bool = True, **settings: Any) -> list[str]:
    """The texts of rows of ids. -100, and whatever else is negative, never reaches the decoder.

    Args:
        ids: whole numbers of shape (rows, length), a tensor, an array or rows of unequal length. Further outputs
            beside them, in a tuple, are left out.
        processing_class: a tokenizer, or a processor that decodes.
        settings: further arguments of its `batch_decode`.

    Raises:
        SettingError: there is nothing that decodes, or the ids are no whole numbers.
    """
    decode = getattr(processing_class, "batch_decode", None)
    if decode is None:
        raise SettingError(
            f"Ids are decoded by a tokenizer or processor, and processing_class is {type(processing_class).__name__}."
        )
    rows = ids[0] if isinstance(ids, tuple) else ids
    rows = rows.detach().cpu().numpy() if isinstance(rows, torch.Tensor) else rows
    arrays = [np.asarray(row) for row in rows]
    for array in arrays:
        if array.size and array.dtype.kind not in "iu":
            raise SettingError(
                f"Only whole numbers can be decoded, not {array.dtype} {array.shape}: take the argmax of scores first."
            )
    texts: list[str] = decode(
        [row[row >= 0].tolist() for row in arrays], skip_special_tokens=skip_special_tokens, **settings
    )
    return texts
