"""Nothing is lost: whatever happens to a run, the same command ends as if nothing had."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from faults import harness, trials

from burnish.checkpoint import find

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
FILES = [
    *("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "config.json", "trainer_state.json"),
    *("burnish.json", "training_args.json", "manifest.json"),
]


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> trials.Straight:
    return trials.Straight.in_folder(tmp_path_factory.mktemp("straight"))


@pytest.fixture
def _may_mount(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if request.getfixturevalue("kind") == trials.NEEDS_MOUNT and not harness.may_mount(tmp_path):
        pytest.skip("no file system can be mounted here")


@pytest.mark.usefixtures("_may_mount")
@pytest.mark.parametrize("kind", trials.FAULTS)
def test_a_run_that_something_happens_to_ends_as_if_nothing_had(
    kind: str, straight: trials.Straight, tmp_path: Path
) -> None:
    assert trials.trial(kind, 0, tmp_path / "run", straight) == []


@pytest.mark.slow
@pytest.mark.usefixtures("_may_mount")
@pytest.mark.parametrize("kind", trials.FAULTS)
@pytest.mark.parametrize("seed", range(1, 5))
def test_more_of_them(kind: str, seed: int, straight: trials.Straight, tmp_path: Path) -> None:
    assert trials.trial(kind, seed, tmp_path / "run", straight) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("how", harness.DAMAGES)
def test_a_damaged_file_of_the_newest_checkpoint(
    name: str, how: str, straight: trials.Straight, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    assert harness.finish(folder) == 0
    *_, before, newest = find.checkpoints(folder)
    harness.damage(newest, name, how, random.Random(0))
    assert harness.finish(folder) == 0
    words = folder.with_suffix(".txt").read_text()
    assert f"{newest.name} is passed over" in words and f"Going on from {before}" in words
    assert harness.differences(harness.outcome(folder), straight.outcome) == []
