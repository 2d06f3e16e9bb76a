"""What every test of several processes needs: all that they use is imported before they are forked."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from trainer import runs


@pytest.fixture(autouse=True, scope="session")
def _imported(tmp_path_factory: pytest.TempPathFactory) -> None:
    torch.set_num_threads(1)
    folder: Path = tmp_path_factory.mktemp("imported")
    run = runs.trainer(folder, max_steps=1, save_strategy="steps", save_steps=1)
    run.train()
    run.predict(run.train_dataset)
