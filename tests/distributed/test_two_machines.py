"""Two machines with a network of their own, one process on each; the second one's is killed, and the run goes on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def may_make_networks() -> bool:
    """Whether this user may make network namespaces."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        return False
    probe = ["unshare", "--net", "true"] if shutil.which("unshare") else ["ip", "netns", "list"]
    return subprocess.run(probe, capture_output=True).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not may_make_networks(), reason="needs root and ip (iproute2)")
def test_a_machine_whose_process_is_killed(tmp_path: Path) -> None:
    script = Path(__file__).with_name("two_machines.sh")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
    done = subprocess.run(
        [str(script), str(tmp_path), sys.executable], env=environment, capture_output=True, text=True, timeout=240
    )
    logs = "".join(path.read_text()[-2000:] for path in tmp_path.glob("machine-*.log"))
    assert done.returncode == 0, done.stderr + logs
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["steps"], found["processes"]) == (30, 2)
    assert len(found["resumed"]) == 1 and found["resumed"][0]["step"] >= 4, found
