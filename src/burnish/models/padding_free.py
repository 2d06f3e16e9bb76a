"""Layers that compute real tokens only.

A padded batch goes through embeddings and head as it is. In between, the stack of layers sees its real tokens end to
end, as one row (1, tokens, hidden): matrix products, norms and activations do no work for padding. Attention alone
needs the rows apart; there queries, keys and values are put back into (batch, heads, length, …), which is cheap, and
the model's own mask applies unchanged; or a kernel takes sequences end to end (varlen.py). So every head works as
before, and no token sees another row.

The attention of transformers is exchanged through its public `AttentionInterface`. Whether a model may be computed this
way is not read off its code: the run tries it on two of its rows first.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import torch
from torch import nn

from . import varlen
from .contract import forward_arguments, without_adapters

ATTENTION = "burnish_padding_free"
"""Name under which the attention is known to transformers while it is in use."""

LIKE_LENGTH = 0.75
"""Rows go through attention together while the shortest is at least this share of the longest."""

LEAST_PADDING = 0.04
"""Share of padding below which rearranging costs more than it saves."""


@dataclass(frozen=True)
class Rows:
    """Neighbouring rows of a batch that attention takes together: rows `first` to `last`, cut at `length`."""

    first: int
    last: int
    length: int

    @property
    def num_places(self) -> int:
        return (self.last - self.first) * self.length

    def mask(self, mask: torch.Tensor) -> torch.Tensor:
        """Their part of an attention mask (batch or 1, heads or 1, length, length)."""
        rows = mask if mask.shape[0] == 1 else mask[self.first : self.last]
        return rows[..., : self.length, : self.length]


@dataclass(frozen=True)
class Packing:
    """Where the real tokens of a padded batch are."""

    index: torch.Tensor
    """Places of real tokens in the batch laid out flat, (tokens,), int64."""
    rows: int
    length: int
    groups: tuple[Rows, ...]
    """All rows, in order."""
    places: torch.Tensor
    """Places of real tokens in the groups laid out flat one after the other, (tokens,), int64."""

    @cached_property
    def num_places(self) -> int:
        return sum(group.num_places for group in self.groups)

    @cached_property
    def token_at(self) -> torch.Tensor:
        """The token at each place, (places,), int64. Padding holds the first token: nobody attends to it."""
        tokens = torch.arange(len(self.places), device=self.places.device)
        return self.places.new_zeros(self.num_places).index_copy_(0, self.places, tokens)

    def apart(self, packed: torch.Tensor) -> list[torch.Tensor]:
        """(1, heads, tokens, head size) to (rows, heads, length, head size) for each group."""
        laid = packed.squeeze(0).transpose(0, 1)  # (tokens, heads, head size)
        if self.num_places > len(laid):
            laid = laid.index_select(0, self.token_at)
        parts = laid.split([group.num_places for group in self.groups])
        pairs = zip(parts, self.groups, strict=True)
        return [part.unflatten(0, (-1, group.length)).transpose(1, 2) for part, group in pairs]

    def together(self, outputs: list[torch.Tensor]) -> torch.Tensor:
        """(rows, length, heads, head size) of each group to (1, tokens, heads, head size)."""
        laid = torch.cat([output.flatten(0, 1) for output in outputs])
        if self.num_places > len(self.places):
            laid = laid.index_select(0, self.places)
        return laid.unsqueeze(0)

    def pack(self, padded: torch.Tensor) -> torch.Tensor:
        """(batch or 1, length, …) to (1, tokens, …)."""
        padded = padded.expand(self.rows, *padded.shape[1:])
        return padded.flatten(0, 1).index_select(0, self.index).unsqueeze(0)

    def unpack(self, packed: torch.Tensor) -> torch.Tensor:
        """(1, tokens, …) to (batch, length, …), zero where there is padding."""
        flat = packed.new_zeros(self.rows * self.length, *packed.shape[2:])
        return flat.index_copy(0, self.index, packed.squeeze(0)).unflatten(0, (self.rows, self.length))


def packing_of(mask: Any, hidden: torch.Tensor) -> Packing | None:
    """The packing of a batch with a 4-dimensional attention mask; None where there is little padding, or no such mask.

    A token is real if it may attend to itself: the diagonal of the mask, causal or not. Reads the mask on the host.
    """
    rows, length = hidden.shape[:2]
    if not isinstance(mask, torch.Tensor) or mask.dim() != 4 or mask.shape[-2:] != (length, length):
        return None
    diagonal = mask[:, 0].diagonal(dim1=-2, dim2=-1)
    real = (diagonal if diagonal.dtype == torch.bool else diagonal == 0).expand(rows, length)
    index = real.flatten().nonzero().squeeze(1)
    if index.numel() == 0 or index.numel() > (1 - LEAST_PADDING) * rows * length:
        return None
    groups, places = _laid_apart(real, index)
    return Packing(index, rows, length, groups, places)


def _laid_apart(real: torch.Tensor, index: torch.Tensor) -> tuple[tuple[Rows, ...], torch.Tensor]:
    """Groups of neighbouring rows of like length, and the places of the tokens in them. Micro-batches come sorted by
    length, so the groups are few."""
    length = real.shape[1]
    ends = (real * torch.arange(1, length + 1, device=real.device)).amax(1).clamp(min=1).tolist()
    groups: list[Rows] = []
    first = 0
    while first < len(ends):
        last, longest = first + 1, ends[first]
        while last < len(ends) and LIKE_LENGTH * longest <= ends[last] <= longest:
            last += 1
        groups.append(Rows(first, last, longest))
        first = last
    widths = [group.length for group in groups for _ in range(group.first, group.last)]
    starts = torch.tensor([0, *accumulate(widths[:-1])], device=real.device)
    return tuple(groups), starts[index // length] + index % length


class PaddingFree:
    """Lets the layers of a model compute real tokens only, while it is `on`."""

    def __init__(self, model: nn.Module, layers: nn.ModuleList) -> None:
        self.model, self.layers = model, layers
        self.attentions = 0
        """Calls of the exchanged attention with packed tokens: none means that the model does not use it."""
        self._names = forward_arguments(layers[0])[0]
        self._packing: Packing | None = None
        self._segments: dict[int, varlen.Segments | None] = {}
        """By the identity of a mask of this forward pass, of which a model has one or two."""
        self._wanted = True

    @classmethod
    def of(cls, model: nn.Module) -> PaddingFree | None:
        """For a model of transformers with one stack of layers and exchangeable attention; None for others."""
        base = without_adapters(model)
        config = getattr(base, "config", None)
        number = getattr(config, "num_hidden_layers", None)
        stacks = [m for m in base.modules() if isinstance(m, nn.ModuleList) and len(m) == number and _one_kind(m)]
        if getattr(config, "is_encoder_decoder", False) or len(stacks) != 1 or _skips_layers(config):
            return None
        if getattr(config, "_attn_implementation", None) != "sdpa" or not hasattr(base, "set_attn_implementation"):
            return None
        return cls(base, stacks[0])

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        """Computes without padding inside the context."""
        _register()
        outer = [module for module in self.model.modules() if self._holds_layers(module)]
        handles = [module.register_forward_pre_hook(self._look_at_call, with_kwargs=True) for module in outer]
        handles += [layer.register_forward_pre_hook(self._before, with_kwargs=True) for layer in self.layers]
        handles.append(self.layers[-1].register_forward_hook(self._after))
        for module in self.layers.modules():
            _owners[module] = self
        config: Any = self.model.config
        before = config._attn_implementation
        self.model.set_attn_implementation(ATTENTION)  # type: ignore[operator]
        try:
            yield
        finally:
            self.model.set_attn_implementation(before)  # type: ignore[operator]
            for handle in handles:
                handle.remove()
            for module in self.layers.modules():
                _owners.pop(module, None)
            self._packing = None

    def attend(self, module: nn.Module, query: Any, key: Any, value: Any, mask: Any, **options: Any) -> Any:
        """The attention of a layer: (1, heads, tokens, head size) packed, or rows as they are."""
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        packing = self._packing
        if packing is None or query.shape[0] != 1 or query.shape[2] != packing.index.numel():
            return sdpa_attention_forward(module, query, key, value, mask, **options)
        self.attentions += 1
        dropout = options.get("dropout", 0.0)
        kernel = varlen.kernel_for(query, dropout, options)
        segments = None if kernel is None else self._segments_in(mask, packing)
        if kernel is not None and segments is not None:
            return varlen.attend(kernel, query, key, value, segments, options.get("scaling"), dropout), None
        outputs, weights = [], None
        for rows, *apart in zip(packing.groups, *map(packing.apart, (query, key, value)), strict=True):
            output, weights = sdpa_attention_forward(module, *apart, rows.mask(mask), **options)
            outputs.append(output)
        return packing.together(outputs), weights

    def _segments_in(self, mask: Any, packing: Packing) -> varlen.Segments | None:
        if id(mask) not in self._segments:
            self._segments[id(mask)] = varlen.segments_of(mask, packing.index)
        return self._segments[id(mask)]

    def _holds_layers(self, module: nn.Module) -> bool:
        return module is not self.layers and any(part is self.layers for part in module.modules())

    def _look_at_call(self, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        """Somebody who asks for all hidden states or attention weights gets them with their padding."""
        config = getattr(module, "config", None)
        asked = ("output_hidden_states", "output_attentions")
        if any(kwargs.get(name, getattr(config, name, False)) for name in asked):
            self._wanted = False

    def _before(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = {**dict(zip(self._names, args, strict=False)), **kwargs}
        if layer is self.layers[0]:
            cached = any(given.get(name) is not None for name in ("cache", "past_key_values", "layer_past"))
            apart = cached or not self._wanted
            self._packing = None if apart else packing_of(given.get("attention_mask"), given[self._names[0]])
            self._segments.clear()
        if self._packing is None:
            return None
        # the hidden states of later layers are packed already, and may be as long as a padded row
        as_they_are = {"attention_mask"} if layer is self.layers[0] else {"attention_mask", self._names[0]}
        changed = {name: value if name in as_they_are else self._packed(value) for name, value in given.items()}
        # what came by position goes by position: reentrant checkpointing follows no gradient through a keyword
        positional = self._names[: len(args)]
        return tuple(changed[name] for name in positional), {n: v for n, v in changed.items() if n not in positional}

    def _packed(self, value: Any) -> Any:
        """Whatever has one entry a token of the padded batch, packed; anything else as it is."""
        assert self._packing is not None
        if isinstance(value, tuple):
            return tuple(map(self._packed, value))
        if not isinstance(value, torch.Tensor) or value.dim() not in (2, 3):
            return value
        rows, length = value.shape[:2]
        of_tokens = length == self._packing.length and rows in (1, self._packing.rows)
        return self._packing.pack(value) if of_tokens else value

    def _after(self, layer: nn.Module, args: Any, output: Any) -> Any:
        packing, self._wanted = self._packing, True
        if packing is None:
            return output
        if isinstance(output, tuple):
            return (packing.unpack(output[0]), *output[1:])
        return packing.unpack(output)


_owners: weakref.WeakKeyDictionary[nn.Module, PaddingFree] = weakref.WeakKeyDictionary()


def _attention(module: nn.Module, query: Any, key: Any, value: Any, attention_mask: Any, **options: Any) -> Any:
    """What transformers calls; the module says whose it is."""
    return _owners[module].attend(module, query, key, value, attention_mask, **options)


def _register() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(ATTENTION, _attention)
    AttentionMaskInterface.register(ATTENTION, sdpa_mask)


def _one_kind(stack: nn.ModuleList) -> bool:
    return len({type(layer) for layer in stack}) == 1


def _skips_layers(config: Any) -> bool:
    """Whether training leaves out layers at random (Fan et al., 2020): the first packs for all, the last unpacks."""
    return any(getattr(config, name, 0) for name in ("layerdrop", "encoder_layerdrop", "decoder_layerdrop"))
