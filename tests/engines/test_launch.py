"""The processes of a run are started together: what they get, and how they end."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from burnish.core.errors import ProcessError, SettingError
from burnish.engines.launch import _said_briefly, checked_count, run_in_processes

START = "import os, sys, time, signal; n = int(os.environ['RANK']); from pathlib import Path; "


def run(code: str, count: int = 2, max_restarts: int = 0) -> int:
    return run_in_processes(["-c", START + code], count, max_restarts)


def test_each_process_knows_its_number_and_its_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    told = "[os.environ[name] for name in ('WORLD_SIZE', 'LOCAL_RANK', 'OMP_NUM_THREADS')]"
    assert run(f"Path({str(tmp_path)!r}, str(n)).write_text(' '.join({told}))") == 0
    threads = max(1, (os.cpu_count() or 1) // 2)
    assert [(tmp_path / str(index)).read_text() for index in (0, 1)] == [f"2 {index} {threads}" for index in (0, 1)]
    assert "OMP_NUM_THREADS" not in os.environ


def test_this_process_does_at_a_signal_what_it_did() -> None:
    before = [signal.getsignal(number) for number in signal.valid_signals()]
    assert run("pass", count=1) == 0
    assert [signal.getsignal(number) for number in signal.valid_signals()] == before


def test_the_exit_code_is_that_of_the_first_to_fail() -> None:
    assert run("n == 1 and sys.exit(2); time.sleep(30)") == 2


def test_a_process_that_was_killed_is_named() -> None:
    with pytest.raises(ProcessError, match=r"Process 1 of 2 was killed \(SIGKILL\)"):
        run("n == 1 and os.kill(os.getpid(), signal.SIGKILL); time.sleep(30)")


def test_torchs_agent_does_not_speak_of_the_signal_that_it_hands_on() -> None:
    """Its modules have levels of their own."""
    speaks = logging.getLogger("torch.distributed.elastic.agent.server.api").isEnabledFor
    with _said_briefly():
        assert not speaks(logging.WARNING)
    assert speaks(logging.WARNING)


def test_all_start_again_where_that_is_asked_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    note = f"done = Path({str(tmp_path)!r}, os.environ['TORCHELASTIC_RUN_ID'] + str(n)); again = done.exists(); "
    code = "done.touch(); again or (n == 1 and os.kill(os.getpid(), signal.SIGKILL)) or again or time.sleep(30)"
    assert run(note + code, max_restarts=3) == 0
    assert sorted(one.name for one in tmp_path.iterdir()) == [f"burnish-{os.getpid()}{index}" for index in (0, 1)]
    assert [one.message for one in caplog.records if one.name == "burnish.engines.launch"] == [
        "Process 1 of 2 was killed (SIGKILL). All are started again (1 of 3 times)."
    ]


@pytest.mark.parametrize("code", [2, 143])
def test_what_would_come_again_or_was_asked_for_is_not_started_again(code: int, tmp_path: Path) -> None:
    starts = f"n == 1 and Path({str(tmp_path)!r}, 'starts').open('a').write('.')"
    assert run(f"{starts}; n == 1 and sys.exit({code}); time.sleep(30)", max_restarts=3) == code
    assert (tmp_path / "starts").read_text() == "."


@pytest.mark.parametrize("number", [int(signal.SIGTERM), int(signal.SIGUSR1)])
def test_a_signal_reaches_all_of_them(number: int, tmp_path: Path) -> None:
    """And they take the time that they need."""
    end = f"lambda *_: (time.sleep(0.3), Path({str(tmp_path)!r}, str(n)).write_text('ended'), sys.exit(128 + {number}))"
    code = f"signal.signal({number}, {end}); Path({str(tmp_path)!r}, 'ready' + str(n)).touch(); time.sleep(30)"

    def send() -> None:
        while not all((tmp_path / f"ready{index}").exists() for index in (0, 1)):
            time.sleep(0.05)
        os.kill(os.getpid(), number)

    threading.Thread(target=send, daemon=True).start()
    assert run(code) == 128 + number
    assert all((tmp_path / str(index)).exists() for index in (0, 1))


def test_a_number_of_processes_that_cannot_be() -> None:
    with pytest.raises(SettingError, match="num_processes 0"):
        checked_count(0, use_cpu=True)
    assert checked_count(64, use_cpu=True) == 64
