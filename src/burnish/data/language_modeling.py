"""The collator of language modelling: labels are made of the tokens themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from burnish.core.errors import SettingError
from burnish.core.randomness import COLLATION, seed_for
from burnish.core.types import IGNORED_LABEL

from .padding import columns_of, in_framework
from .tokenizer_padding import pad_with_tokenizer


@dataclass
class DataCollatorForLanguageModeling:
    """Makes the labels of masked (`mlm=True`) or causal language modelling.

    Causal: labels are the tokens, with -100 at padding. Padding is told from the attention mask, not from the pad
    token, so an end-of-text token that doubles as the pad token keeps its label at the real end of a row. Rows with
    labels of their own, one a token, keep them: -100 on a prompt stays -100.

    Masked: each token but special ones is chosen with `mlm_probability`, after BERT (arXiv:1810.04805, 3.1). Of the
    chosen, `mask_replace_prob` become the mask token, `random_replace_prob` a random token, the rest stay. A trainer
    gives a seed for each row (`with_seeds`); called without, draws come from torch's global generator.

    Args:
        tokenizer: a tokenizer with a mask token (masked) and a pad token (ragged rows).
        mlm: masked, or causal.
        whole_word_mask: not available; only False.
        mlm_probability: share of tokens to predict, from 0 to 1.
        mask_replace_prob, random_replace_prob: shares of the chosen tokens; their sum is at most 1.
        pad_to_multiple_of: rounds the padded length up.
        return_tensors: "pt" or "np".
        seed: mixed into the draws, so that another seed gives other masks for the same seeds of rows, or the same state
            of torch's generator.
    """

    tokenizer: Any
    mlm: bool = True
    whole_word_mask: bool = False
    mlm_probability: float | None = 0.15
    mask_replace_prob: float = 0.8
    random_replace_prob: float = 0.1
    pad_to_multiple_of: int | None = None
    return_tensors: str = "pt"
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.whole_word_mask:
            raise SettingError("whole_word_mask=True is not available here: set whole_word_mask=False.")
        if self.mlm and getattr(self.tokenizer, "mask_token", None) is None:
            raise SettingError("mlm=True needs a tokenizer with a mask token, and this one has none: set mlm=False.")
        shares = {name: getattr(self, name) for name in ("mlm_probability", "mask_replace_prob", "random_replace_prob")}
        for name, share in shares.items():
            if self.mlm and (share is None or not 0 <= share <= 1):
                raise SettingError(f"{name}={share} is not a share: give a number from 0 to 1.")
        if self.mask_replace_prob + self.random_replace_prob > 1 + 1e-9:
            raise SettingError(
                f"mask_replace_prob={self.mask_replace_prob} and random_replace_prob={self.random_replace_prob} add up "
                "to more than 1: they are shares of the same chosen tokens."
            )

    def __call__(self, features: Sequence[Any], return_tensors: str | None = None) -> Any:
        """`features` are mappings with `input_ids`, or bare sequences of token ids."""
        batch = self._padded(features)
        padding, special_tokens_mask = self._padding_of(batch), batch.pop("special_tokens_mask", None)
        if self.mlm:
            spared = self._special_tokens(batch["input_ids"], special_tokens_mask) | padding
            batch["input_ids"], batch["labels"] = self.torch_mask_tokens(batch["input_ids"], spared)
        else:
            batch["labels"] = batch.get("labels", batch["input_ids"]).masked_fill(padding, IGNORED_LABEL)
        return in_framework(batch, return_tensors or self.return_tensors)

    def with_seeds(self, features: Sequence[Any], seeds: Sequence[int]) -> Any:
        """Masked rows, with a seed of 63 bits for each. What is masked in a row follows from its tokens and its seed:
        not from the rows beside it, from padding, or from any generator."""
        assert self.mlm, "the labels of causal language modelling are not drawn"
        batch = self._padded(features)
        padding, special_tokens_mask = self._padding_of(batch), batch.pop("special_tokens_mask", None)
        spared = self._special_tokens(batch["input_ids"], special_tokens_mask) | padding
        draws = self._draws(~padding, seeds)
        batch["input_ids"], batch["labels"] = self._masked(batch["input_ids"], spared, draws)
        return in_framework(batch, self.return_tensors)

    def torch_mask_tokens(
        self, inputs: torch.Tensor, special_tokens_mask: torch.Tensor | None = None, offset_mapping: Any = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs with masks, and labels (-100 where nothing was chosen). All have the shape (rows, length)."""
        seeds = torch.randint(2**62, (len(inputs),)).tolist()
        draws = self._draws(torch.ones_like(inputs, dtype=torch.bool), seeds)
        return self._masked(inputs, self._special_tokens(inputs, special_tokens_mask), draws)

    def _padded(self, features: Sequence[Any]) -> Any:
        if not isinstance(features[0], Mapping):
            features = [{"input_ids": ids} for ids in features]
        columns = columns_of(features)
        columns.pop("offset_mapping", None)
        own_labels = columns.pop("labels", None)
        if own_labels is not None and not self.mlm and _one_a_token(own_labels, columns["input_ids"]):
            columns["labels"] = own_labels
        return pad_with_tokenizer(self.tokenizer, columns, pad_to_multiple_of=self.pad_to_multiple_of)

    def _draws(self, real: torch.Tensor, seeds: Sequence[int]) -> torch.Tensor:
        """Three numbers from 0 to 1 for each real token, from the seed of its row: float64 (rows, length, 3), 0 at
        padding. A generator for each row costs some 5 µs, little beside padding the row."""
        if self.seed is not None:
            seeds = [seed_for(self.seed, COLLATION, seed) for seed in seeds]
        of_rows = [
            torch.rand(num_tokens, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
            for num_tokens, seed in zip(real.sum(dim=1).tolist(), seeds, strict=True)
        ]
        draws = torch.zeros(*real.shape, 3, dtype=torch.float64)
        draws[real] = torch.cat(of_rows)
        return draws

    def _masked(
        self, inputs: torch.Tensor, spared: torch.Tensor, draws: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs with masks, and labels, of draws (rows, length, 3): whether a token is chosen, its fate, its word."""
        choice, fate, word = draws.unbind(-1)
        chosen = (choice < (self.mlm_probability or 0)) & ~spared
        masked = chosen & (fate < self.mask_replace_prob)
        random = chosen & ~masked & (fate < self.mask_replace_prob + self.random_replace_prob)
        words = (word * len(self.tokenizer)).to(inputs.dtype)
        spoiled = torch.where(random, words, inputs.masked_fill(masked, self.tokenizer.mask_token_id))
        return spoiled, inputs.masked_fill(~chosen, IGNORED_LABEL)

    def _special_tokens(self, ids: torch.Tensor, special_tokens_mask: torch.Tensor | None) -> torch.Tensor:
        if special_tokens_mask is not None:
            return torch.as_tensor(special_tokens_mask).bool()
        return torch.isin(ids, torch.tensor(self.tokenizer.all_special_ids, dtype=ids.dtype))

    def _padding_of(self, batch: Any) -> torch.Tensor:
        """True at padding: where the mask is 0, and at tokens whose only meaning is padding."""
        ids, mask = batch["input_ids"], batch.get("attention_mask")
        pad = self.tokenizer.pad_token_id
        others = (getattr(self.tokenizer, f"{kind}_token_id", None) for kind in ("eos", "bos", "sep", "cls", "unk"))
        padding = torch.zeros_like(ids, dtype=torch.bool)
        if pad is not None and pad not in others:
            padding |= ids == pad
        if mask is not None and mask.shape == ids.shape:
            padding |= mask == 0
        return padding


def _one_a_token(labels: list[Any], tokens: list[Any]) -> bool:
    def length(value: Any) -> int:
        return len(value) if hasattr(value, "__len__") else -1

    return all(length(row) == length(ids) for row, ids in zip(labels, tokens, strict=True))
