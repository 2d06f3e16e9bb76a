"""The next token of each text: the likeliest, or one that is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from burnish.core.randomness import GENERATION, seed_for

from .decoding import Decoding, Sampling
from .unfinished import Text


@dataclass(frozen=True)
class Choice:
    """Chooses tokens.

    A draw is counted: it follows from the seed, the number of the row and the place in its text, so that a text is the
    same whatever else is written beside it.
    """

    decoding: Decoding
    seed: int

    def next_tokens(self, logits: torch.Tensor, texts: Sequence[Text]) -> list[int]:
        """One token for each text, of its logits (texts, vocabulary)."""
        if ends := list(self.decoding.ends):
            early = [i for i, text in enumerate(texts) if text.num_written < text.least]
            if early:
                logits = logits.clone()
                logits[
                    torch.tensor(early, device=logits.device)[:, None], torch.tensor(ends, device=logits.device)
                ] = -torch.inf
        if self.decoding.sampling is None:
            return likeliest(logits).tolist()
        uniform = [self._uniform(text) for text in texts]
        return drawn(logits, self.decoding.sampling, torch.tensor(uniform, dtype=torch.float64)).tolist()

    def _uniform(self, text: Text) -> float:
        return seed_for(self.seed, GENERATION, text.row, text.num_written) / 2**63


def likeliest(logits: torch.Tensor) -> torch.Tensor:
    """The place of the highest logit of each row, the first of equal ones; int64 (rows,).

    The same as `argmax`, which takes longer on a CPU.
    """
    return logits.max(-1).indices


def drawn(logits: torch.Tensor, sampling: Sampling, uniform: torch.Tensor) -> torch.Tensor:
    """A token of each row, by inverting the distribution function at `uniform`, float64 (rows,) in [0, 1).

    Temperature, top-k, top-p (Holtzman et al., 2020) and min-p (Nguyen et al., 2024) apply in this order, as in
    transformers.
    """
    vocabulary = logits.shape[-1]
    kept = min(sampling.top_k, vocabulary) if sampling.top_k > 0 else vocabulary
    scores, tokens = logits.double().div(sampling.temperature).topk(kept)  # in descending order
    shares = scores.softmax(-1)
    before = shares.cumsum(-1) - shares
    out = (before >= sampling.top_p) | (shares < sampling.min_p * shares[:, :1])
    out[:, 0] = False
    shares = shares.masked_fill(out, 0.0)
    reached = shares.cumsum(-1)
    aim = uniform.to(logits.device)[:, None] * reached[:, -1:]
    places = (reached <= aim).sum(-1, keepdim=True).clamp(max=kept - 1)
    return tokens.gather(-1, places).squeeze(-1)
