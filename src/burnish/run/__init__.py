"""What `Trainer.train` and `Trainer.evaluate` put together: settings and parts in, a loop that can run out."""
