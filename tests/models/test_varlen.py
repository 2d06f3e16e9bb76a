"""Packed attention in one kernel call: where sequences begin, which kernel is taken, and what it computes.

No kernel of this kind runs on a CPU: a plain one of the same form stands in.
"""

from __future__ import annotations

import math
import sys
import types
from itertools import pairwise
from typing import Any

import pytest
import tiny
import torch
from torch.nn.functional import scaled_dot_product_attention

from burnish.models import varlen
from burnish.models.padding_free import PaddingFree
from burnish.models.varlen import Segments, attend, kernel_for, segments_of

LENGTH = 6


def mask_of(rows: list[list[int]], causal: bool, kind: torch.dtype = torch.bool) -> tuple[Any, Any]:
    """A mask for rows in which each place has the number of its sequence, 0 for padding, and the real places."""
    numbers = torch.tensor(rows)
    seen = (numbers[:, None, :] == numbers[:, :, None]) & (numbers != 0)[:, None, :] & (numbers != 0)[:, :, None]
    if causal:
        seen &= torch.ones(numbers.shape[1], numbers.shape[1]).tril().bool()
    mask = seen[:, None]
    if kind != torch.bool:
        mask = torch.zeros(mask.shape, dtype=kind).masked_fill(~mask, torch.finfo(kind).min)
    return mask, (numbers != 0).flatten().nonzero().squeeze(1)


RIGHT = [[1, 1, 1, 1, 1, 0], [1, 1, 1, 0, 0, 0], [1, 0, 0, 0, 0, 0]]
LEFT = [[0, 1, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 0, 1]]
BINS = [[1, 1, 2, 2, 2, 0], [1, 2, 2, 2, 2, 2]]


@pytest.mark.parametrize("kind", [torch.bool, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(
    ("rows", "starts", "longest"), [(RIGHT, [0, 5, 8, 9], 5), (LEFT, [0, 5, 8, 9], 5), (BINS, [0, 2, 5, 6, 11], 5)]
)
def test_where_sequences_begin(rows, starts, longest, causal, kind) -> None:
    found = segments_of(*mask_of(rows, causal, kind))
    assert found is not None
    assert (found.starts.tolist(), found.longest, found.causal) == (starts, longest, causal)
    assert found.starts.dtype == torch.int32


def test_other_masks_are_refused() -> None:
    mask, index = mask_of(RIGHT, causal=True)
    window = mask & torch.ones(LENGTH, LENGTH).triu(-1).bool()
    holes = mask.clone()
    holes[0, 0, 4, 1] = False
    ahead = mask.clone()
    ahead[0, 0, 1, 2] = True
    floats, _ = mask_of(RIGHT, causal=True, kind=torch.float32)
    biased = floats.clone()
    biased[0, 0, 3, 2] = -1.5
    per_head = mask.expand(-1, 2, -1, -1)
    for name, other in {
        "window": window, "holes": holes, "ahead": ahead, "biased": biased, "per head": per_head, "none": None,
    }.items():  # fmt: skip
        assert segments_of(other, index) is None, name


def test_part_of_a_sequence_is_no_sequence() -> None:
    """Each token of the first row sees the first two only."""
    mask, index = mask_of(RIGHT, causal=False)
    mask = mask.clone()
    mask[0, :, :, 2:] = False
    assert segments_of(mask, index) is None


def plain(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, segments: Segments, scale: Any, dropout: float
) -> torch.Tensor:
    """Sequence by sequence."""
    bounds, outputs = segments.starts.tolist(), []
    for first, last in pairwise(bounds):
        parts = [part[first:last].transpose(0, 1)[None] for part in (query, key, value)]
        output = scaled_dot_product_attention(
            *parts, dropout_p=dropout, is_causal=segments.causal, scale=scale, enable_gqa=True
        )
        outputs.append(output[0].transpose(0, 1))
    assert max(b - a for a, b in pairwise(bounds)) == segments.longest
    return torch.cat(outputs)


def causal_batch() -> dict[str, torch.Tensor]:
    ids = torch.tensor([tiny.words(8, 1), tiny.words(5, 2) + 3 * [0], tiny.words(3, 3) + 5 * [0]])
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": ids.masked_fill(ids == 0, -100)}


@pytest.mark.parametrize("kind", ["llama", "bert"])
def test_a_model_computes_what_it_computes(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.llama(use_cache=False) if kind == "llama" else tiny.bert("MaskedLM")
    calls: list[bool] = []

    def stand_in(*args: Any) -> torch.Tensor:
        calls.append(args[3].causal)
        return plain(*args)

    def scores() -> list[torch.Tensor]:
        model.zero_grad()
        loss = model(**causal_batch()).loss
        loss.backward()
        return [loss.detach(), *(weight.grad.clone() for weight in model.parameters() if weight.grad is not None)]

    expected = scores()
    monkeypatch.setattr(varlen, "kernel_for", lambda query, dropout, options: stand_in)
    free = PaddingFree.of(model)
    assert free is not None
    with free.on():
        found = scores()
    assert calls == 2 * [kind == "llama"]
    for one, other in zip(expected, found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


class OnDevice:
    """A tensor as far as the choice looks at it."""

    def __init__(self, device: str = "cuda", dtype: torch.dtype = torch.bfloat16, size: int = 64) -> None:
        self.device, self.dtype, self.shape = types.SimpleNamespace(type=device), dtype, (1, 2, 10, size)


def test_the_kernel_follows_device_type_and_package(monkeypatch: pytest.MonkeyPatch) -> None:
    present = {"torch.nn.attention.varlen"}
    monkeypatch.setattr(varlen, "_is_there", present.__contains__)

    def chosen(query: Any, dropout: float = 0.0, **options: Any) -> Any:
        return kernel_for(query, dropout, options)

    assert chosen(OnDevice()) is varlen._of_torch
    assert chosen(OnDevice(), dropout=0.1) is None
    assert chosen(OnDevice("cpu")) is None
    assert chosen(OnDevice(dtype=torch.float32)) is None
    assert chosen(OnDevice(size=320)) is None
    assert chosen(OnDevice(), softcap=50.0) is None
    assert chosen(OnDevice(), softcap=None) is varlen._of_torch
    present.add("flash_attn")
    assert chosen(OnDevice(), dropout=0.1) is varlen._flash_attn


def as_flash_attn(
    query, key, value, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0, softmax_scale=None,
    causal=False,
) -> torch.Tensor:  # fmt: skip
    """The form of `flash_attn.flash_attn_varlen_func`."""
    assert cu_seqlens_q is cu_seqlens_k and max_seqlen_q == max_seqlen_k
    return plain(query, key, value, Segments(cu_seqlens_q, max_seqlen_q, causal), softmax_scale, dropout_p)


def as_torch(
    query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, scale=None, window_size=(-1, -1), enable_gqa=False
) -> torch.Tensor:
    """The form of `torch.nn.attention.varlen.varlen_attn`."""
    assert enable_gqa == (query.shape[1] != key.shape[1])
    return plain(query, key, value, Segments(cu_seq_q, max_q, window_size == (-1, 0)), scale, 0.0)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", ["_flash_attn", "_of_torch"])
def test_kernels_are_called_in_their_form(name: str, causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch.nn.attention.varlen as of_torch

    package = types.ModuleType("flash_attn")
    package.flash_attn_varlen_func = as_flash_attn  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "flash_attn", package)
    monkeypatch.setattr(of_torch, "varlen_attn", as_torch)
    draw = torch.Generator().manual_seed(0)
    query = torch.randn(1, 4, 9, 8, generator=draw)
    key, value = (torch.randn(1, 2, 9, 8, generator=draw) for _ in range(2))
    mask, index = mask_of(RIGHT, causal)
    segments = segments_of(mask, index)
    found = attend(getattr(varlen, name), query, key, value, segments, scale=0.3, dropout=0.0)

    rows = torch.zeros(len(RIGHT) * LENGTH, dtype=torch.long).index_copy(0, index, torch.arange(9))
    apart = [part[0][:, rows].unflatten(1, (len(RIGHT), LENGTH)).transpose(0, 1) for part in (query, key, value)]
    padding = torch.eye(LENGTH, dtype=torch.bool)  # a row of the softmax needs something to attend to
    padded = scaled_dot_product_attention(*apart, attn_mask=mask | padding, scale=0.3, enable_gqa=True)
    expected = padded.transpose(1, 2).flatten(0, 1)[index][None]
    torch.testing.assert_close(found, expected)
    assert not math.isnan(float(found.sum()))
