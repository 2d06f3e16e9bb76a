"""Attention of packed tokens in one call of a kernel for sequences of unequal length.

The rows of a batch lie end to end, and the kernel is told where each begins (`cu_seqlens`): nothing is put apart and no
mask is read. Such kernels know two masks only, all of a sequence and all before a token, so the model's own mask is
read once and must be one of these: with padding left or right, and with several sequences in a row.

Used on CUDA in half precision. Both kernels are flash attention (Dao, 2023): of the package flash_attn, which has
dropout, and of torch (`torch.nn.attention.varlen`), which has none.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import torch

HALF = (torch.float16, torch.bfloat16)
LARGEST_HEAD = 256
"""Numbers of a head's query that flash attention takes at most."""
OWN_RULES = ("softcap", "s_aux", "position_bias")
"""Options of an attention that change its scores, each None where it is not used."""


@dataclass(frozen=True)
class Segments:
    """Where the sequences are in packed tokens."""

    starts: torch.Tensor
    """Place of the first token of each, and the number of tokens at the end, (sequences + 1,), int32."""
    longest: int
    causal: bool
    """Whether a token attends to what is before it and itself; otherwise to all of its sequence."""


class Kernel(Protocol):
    """(tokens, heads, head size) of queries, keys and values to that of the output; fewer heads of keys are shared."""

    def __call__(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, segments: Segments, scale: float | None,
        dropout: float,
    ) -> torch.Tensor: ...  # fmt: skip


def segments_of(mask: Any, index: torch.Tensor) -> Segments | None:
    """The sequences that an attention mask keeps apart; None where it does not say "all before" or "all" for each token
    of such a sequence, as with a sliding window. Reads the mask on the host.

    Args:
        mask: (rows, 1, length, length), True or 0 where a token attends, False or a very low number elsewhere.
        index: places of the real tokens in (rows × length) laid out flat, (tokens,), int64, rising.
    """
    if not isinstance(mask, torch.Tensor) or mask.dim() != 4 or mask.shape[1] != 1:
        return None
    length = mask.shape[-1]
    row, place = index // length, index % length
    num_rows, keys = int(row[-1]) + 1, torch.arange(length, device=mask.device)
    seen = _allowed(mask).expand(num_rows, 1, length, length)[row, 0, place]  # (tokens, length)
    before = keys <= place[:, None]
    is_start = torch.where(seen, keys, length).amin(1) == place
    sequence = is_start.cumsum(0)
    sequence_at = sequence.new_zeros(num_rows * length).index_copy(0, index, sequence).unflatten(0, (num_rows, length))
    causal = ~(seen & ~before).any()
    expected = (sequence_at[row] == sequence[:, None]) & (before | ~causal)
    if not bool(is_start[0] & (seen == expected).all()):
        return None
    starts = torch.cat([is_start.nonzero().squeeze(1), index.new_tensor([len(index)])])
    return Segments(starts.to(torch.int32), int(starts.diff().amax()), bool(causal))


def _allowed(mask: torch.Tensor) -> torch.Tensor:
    """Whether a query attends to a key. Biases between 0 and the lowest number count as no such mask: nobody is let
    through, and the mask is refused."""
    if mask.dtype == torch.bool:
        return mask
    plain = (mask == 0) | (mask <= torch.finfo(mask.dtype).min / 2)
    return (mask == 0) & plain.all()


def kernel_for(query: torch.Tensor, dropout: float, options: dict[str, Any]) -> Kernel | None:
    """The kernel for queries (1, heads, tokens, head size) of this device and type; None where the rows must be put
    apart."""
    kind = _computed_in(query)
    if query.device.type != "cuda" or kind not in HALF or query.shape[-1] > LARGEST_HEAD:
        return None
    if any(options.get(name) is not None for name in OWN_RULES):
        return None
    if _is_there("flash_attn"):
        return _flash_attn
    return _of_torch if dropout == 0 and _is_there("torch.nn.attention.varlen") else None


def _computed_in(query: torch.Tensor) -> torch.dtype:
    return torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else query.dtype


@cache
def _is_there(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def attend(
    kernel: Kernel, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, segments: Segments,
    scale: float | None, dropout: float,
) -> torch.Tensor:  # fmt: skip
    """(1, heads, tokens, head size) of each to the output (1, tokens, heads, head size), in the type of the query."""
    kind = _computed_in(query)
    queries, keys, values = (part.squeeze(0).transpose(0, 1).to(kind) for part in (query, key, value))
    return kernel(queries, keys, values, segments, scale, dropout).unsqueeze(0).to(query.dtype)


def _flash_attn(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, segments: Segments, scale: float | None,
    dropout: float,
) -> torch.Tensor:  # fmt: skip
    from flash_attn import flash_attn_varlen_func

    output: torch.Tensor = flash_attn_varlen_func(
        query, key, value, segments.starts, segments.starts, segments.longest, segments.longest,
        dropout_p=dropout, softmax_scale=scale, causal=segments.causal,
    )  # fmt: skip
    return output


def _of_torch(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, segments: Segments, scale: float | None,
    dropout: float,
) -> torch.Tensor:  # fmt: skip
    from torch.nn.attention.varlen import varlen_attn

    assert dropout == 0
    output = varlen_attn(
        query, key, value, segments.starts, segments.starts, segments.longest, segments.longest,
        scale=scale, window_size=(-1, 0) if segments.causal else (-1, -1), enable_gqa=query.shape[1] != key.shape[1],
    )  # fmt: skip
    assert isinstance(output, torch.Tensor)
    return output
