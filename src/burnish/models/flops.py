"""What a model computes for a token, from its weights."""

from __future__ import annotations

from torch import nn

from burnish.core.zero_parts import num_elements


def flops_per_token(model: nn.Module) -> float:
    """Floating-point operations of the forward and backward pass for one token.

    For each weight of a matrix product 2 forward, 2 for the gradient of what goes in, and 2 for its own gradient where
    it is trained: 6 in all (Kaplan et al., 2020, §2.1). A table that is only looked up multiplies nothing; one that is
    the output layer too does.
    """
    multiplying = {
        weight
        for module in model.modules()
        if not isinstance(module, nn.Embedding)
        for weight in module.parameters(recurse=False)
    }
    return sum((6.0 if weight.requires_grad else 4.0) * num_elements(weight) for weight in multiplying)
