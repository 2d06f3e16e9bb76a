"""The loop: one step, the training loop, the evaluation loop, signals. Knows the other rooms by protocol only."""
