"""A signal asks for an end; the run ends where it chooses to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from burnish.loop.signals import StopRequests, signal_of

ALL = [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1]


def send(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", ALL)
def test_a_signal_is_noted_and_the_work_goes_on(number: int, capfd: pytest.CaptureFixture[str]) -> None:
    with StopRequests() as requests:
        assert requests.requested is None
        send(number)
        assert requests.requested == number
    assert signal.Signals(number).name in capfd.readouterr().err


def test_the_end_is_the_one_the_signal_asked_for() -> None:
    with StopRequests() as requests:
        send(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            requests.raise_for(signal.SIGINT)
    with StopRequests() as requests:
        send(signal.SIGTERM)
        with pytest.raises(SystemExit) as end:
            requests.raise_for(signal.SIGTERM)
    assert end.value.code == 143


def test_a_second_interrupt_leaves_at_once() -> None:
    with StopRequests() as requests:
        send(signal.SIGINT)
        assert requests.requested == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)


def test_a_termination_may_come_again() -> None:
    with StopRequests() as requests:
        send(signal.SIGTERM)
        send(signal.SIGTERM)
        assert requests.requested == signal.SIGTERM


def test_a_second_interrupt_after_a_termination_leaves_at_once() -> None:
    with StopRequests() as requests:
        send(signal.SIGTERM)
        send(signal.SIGINT)
        assert requests.requested == signal.SIGTERM
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)


def test_handlers_are_given_back_also_after_an_error() -> None:
    before = [signal.getsignal(number) for number in ALL]

    def fail() -> None:
        with StopRequests():
            assert [signal.getsignal(number) for number in ALL] != before
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert [signal.getsignal(number) for number in ALL] == before


def test_a_handler_of_the_user_stays() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: seen.append(number))
    try:
        with StopRequests() as requests:
            send(signal.SIGUSR1)
            assert requests.requested is None
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [signal.SIGUSR1]


def test_outside_the_main_thread_nothing_is_taken_over() -> None:
    before = [signal.getsignal(number) for number in ALL]
    found: list[object] = []

    def run() -> None:
        with StopRequests():
            found.extend(signal.getsignal(number) for number in ALL)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == before


@pytest.mark.parametrize(
    ("code", "number"),
    [(143, signal.SIGTERM), (138, signal.SIGUSR1), (128, None), (1, None), ("143", None), (None, None)],
)
def test_an_end_tells_its_signal(code: int | str | None, number: signal.Signals | None) -> None:
    assert signal_of(SystemExit(code)) is number


FORKS = """
import os, signal, sys, time
from burnish.loop.signals import StopRequests
with StopRequests() as requests:
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(30)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGTERM, status
    assert requests.requested is None
"""


def test_a_forked_worker_can_be_terminated_and_leaves_interrupts_to_its_parent() -> None:
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
