"""What processes agree on before each step, and after callbacks of a user's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from looping import NoStop, batch, step

from burnish.core.progress import TrainerControl
from burnish.loop.agreement import Agreement, Totals, Work


class Others:
    """Processes whose answers are known: this one is the first."""

    index = local_index = 0

    def __init__(self, *rows: Sequence[float]) -> None:
        self.rows, self.count, self.asked = [list(row) for row in rows], len(rows) + 1, 0

    def table(self, numbers: Sequence[float]) -> list[list[float]]:
        self.asked += 1
        return [list(numbers), *self.rows]


def agreement(processes: Any = None, **more: Any) -> Agreement:
    stop = more.pop("stop", NoStop())
    given = {} if processes is None else {"processes": processes}
    return Agreement(lambda taken: Work(3, 2), lambda taken: 0.5, stop, **given, **more)


ONE = step(batch(0, 1))


def test_one_process_asks_nobody() -> None:
    found = agreement().on(ONE)
    assert found == Totals(targets=3, examples=2, tokens=2, positions=2, positions_plain=2, flops=0.5, batches=2)
    assert agreement().on(None) is None


def test_sums_and_the_most_micro_batches() -> None:
    others = Others([1, 0, 0, 0, 5, 4, 40, 44, 48, 1.5, 7])
    found = agreement(others).on(ONE)
    assert found == Totals(targets=8, examples=6, tokens=42, positions=46, positions_plain=50, flops=2.0, batches=7)
    assert isinstance(found.targets, int) and isinstance(found.batches, int) and others.asked == 1


def test_a_process_without_rows_takes_part_until_all_are_done() -> None:
    assert agreement(Others([1, 0, 0, 0, 5, 4, 40, 44, 48, 1.5, 7])).on(None) == Totals(5, 4, 40, 44, 48, 1.5, 7)
    assert agreement(Others([0] * 11)).on(None) is None


def test_a_signal_of_another_process() -> None:
    found = agreement(Others([1, 15, 0, 0, *[0] * 7]))
    found.on(ONE)
    assert found.asked_by == 15


def test_a_signal_that_not_all_know_of_yet() -> None:
    stop = NoStop()
    found = agreement(Others([1, 0, 0, 0, *[0] * 7]), stop=stop)
    found.on(ONE)
    stop.requested = 15
    assert found.asked_by is None
    found.on(ONE)
    assert found.asked_by == 15
    assert agreement(stop=stop).asked_by == 15, "one process knows at once"


@pytest.mark.parametrize(("here", "there"), [(True, 0), (False, 1), (True, 1), (False, 0)])
def test_what_any_process_asks_for(here: bool, there: float) -> None:
    """Asked about where callbacks of a user's own listen, on this process or another."""
    control = TrainerControl(should_save=True)
    others = Others([1, 0, 0, there, *[0] * 7])
    found = agreement(others, free_callbacks=lambda: here)
    found.on(ONE)
    others.rows = [[1, 0, 0, 0, 1, 0]]
    found.on_control(control)
    if here or there:
        assert control == TrainerControl(should_training_stop=True, should_log=True, should_save=True)
    else:
        assert others.asked == 1 and control == TrainerControl(should_save=True)


def test_a_bad_step_that_another_process_has_seen() -> None:
    found = agreement(Others([1, 0, 1, 0, *[0] * 7]))
    found.on(ONE)
    assert found.is_bad
