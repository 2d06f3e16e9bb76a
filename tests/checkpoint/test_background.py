"""One piece of work at a time, and what has become of it."""

from __future__ import annotations

import os
import signal
import sys
import threading

import pytest

from burnish.checkpoint.background import BackgroundWriter, wait_for_all


def test_work_is_done_in_another_thread_and_its_error_returned_once() -> None:
    writer, done = BackgroundWriter(), []
    writer.start(lambda: done.append(threading.current_thread()))
    assert writer.take() is None and done != [threading.current_thread()]
    writer.start(lambda: 1 / 0)
    assert isinstance(writer.take(), ZeroDivisionError)
    assert writer.take() is None and not writer.at_work


def test_what_an_interrupt_did_not_wait_for_is_still_at_work() -> None:
    writer, opened = BackgroundWriter(), threading.Event()
    writer.start(opened.wait)
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        writer.take()
    assert writer.at_work
    threading.Timer(0.1, opened.set).start()
    wait_for_all()
    assert not writer.at_work and writer.take() is None


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own")
def test_the_training_comes_first() -> None:
    writer, mine, found = BackgroundWriter(), threading.get_native_id(), []
    before = os.getpriority(os.PRIO_PROCESS, mine)
    writer.start(lambda: found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id())))
    assert writer.take() is None
    assert found == [min(before + 5, 19)] and os.getpriority(os.PRIO_PROCESS, mine) == before
