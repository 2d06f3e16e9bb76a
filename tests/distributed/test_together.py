"""How processes come together, and what they tell each other on the host."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from distributed.forked import in_processes, values
from trainer import runs

from burnish.arguments.choices import ParallelMode
from burnish.core.errors import ProcessError, SettingError
from burnish.engines.processes import processes_for


def arguments(folder: Path, **changes: Any) -> Any:
    return runs.arguments(folder, **changes)


def asked(folder: Path) -> Any:
    args = arguments(folder)
    before = args.world_size, args.process_index, args.local_process_index, args.parallel_mode, dist.is_initialized()
    run = runs.trainer(folder)
    after = run.args.world_size, run.args.process_index, run.args.local_process_index, run.args.parallel_mode
    flags = run.state.is_world_process_zero, run.state.is_local_process_zero
    return before, after, flags, dist.get_backend(), run.engine.device.type, run.accelerator.num_processes


def test_arguments_know_the_processes(tmp_path: Path) -> None:
    for index, found in enumerate(values(in_processes(2, tmp_path, asked, tmp_path))):
        numbers = (2, index, index, ParallelMode.DISTRIBUTED)
        first = index == 0
        assert found == ((*numbers, False), numbers, (first, first), "gloo", "cpu", 2)


def told(folder: Path) -> Any:
    processes = processes_for(arguments(folder))
    assert processes is processes_for(arguments(folder)), "one group for all trainers"
    index = processes.index
    table = processes.table([index, 2**53 - index, 0.5])
    everything = processes.all_of({"rank": index, "text": "x" * (1000 * index)})
    return table, [len(part["text"]) for part in everything], processes.from_first(lambda: f"of {index}")


def test_numbers_and_values_of_all_processes(tmp_path: Path) -> None:
    for table, lengths, first in values(in_processes(3, tmp_path, told, tmp_path)):
        assert table == [[index, 2**53 - index, 0.5] for index in range(3)]
        assert lengths == [0, 1000, 2000] and first == "of 0"


def one_fails(folder: Path, where: str) -> Any:
    """Process 1 fails while the others wait for something."""
    processes = processes_for(arguments(folder))
    if processes.index == 1:
        processes.tell(ValueError("of process 1"))
        return "told"
    try:
        {"table": lambda: processes.table([1]), "all_of": lambda: processes.all_of("x" * 99),
         "from_first": lambda: processes.from_first(lambda: 7)}[where]()  # fmt: skip
    except ProcessError as error:
        return str(error)


@pytest.mark.parametrize("where", ["table", "all_of", "from_first"])
def test_a_failure_is_heard_wherever_the_others_are(where: str, tmp_path: Path) -> None:
    found = values(in_processes(3, tmp_path, one_fails, tmp_path, where))
    heard = "Process 1 of 3 has failed: ValueError: of process 1"
    assert found == [heard, "told", heard]


def all_fail(folder: Path) -> Any:
    processes = processes_for(arguments(folder))
    processes.tell(ValueError("of all"))
    return processes.table([processes.index])


def test_after_a_failure_of_all_they_are_in_step(tmp_path: Path) -> None:
    assert values(in_processes(2, tmp_path, all_fail, tmp_path)) == [[[0.0], [1.0]]] * 2


def with_a_group_of_ones_own(folder: Path, with_environment: bool) -> Any:
    """As `torch.multiprocessing.spawn` is used: no launcher, a file to meet."""
    index = int(os.environ["RANK"])
    if not with_environment:
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
            del os.environ[name]
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=index, world_size=2, timeout=timedelta(seconds=20)
    )
    group = dist.group.WORLD
    run = runs.trainer(folder / "out", max_steps=1, per_device_train_batch_size=2)
    run.train()
    assert dist.group.WORLD is group
    return run.engine.num_processes, run.args.process_index, run.state.num_examples_seen


@pytest.mark.parametrize("with_environment", [True, False])
def test_a_group_that_exists_is_used(with_environment: bool, tmp_path: Path) -> None:
    found = values(in_processes(2, tmp_path, with_a_group_of_ones_own, tmp_path, with_environment))
    assert found == [(2, 0, 4), (2, 1, 4)]


def after_accelerate(folder: Path) -> Any:
    from accelerate import Accelerator

    Accelerator(cpu=True)
    run = runs.trainer(folder, max_steps=1, per_device_train_batch_size=2)
    run.train()
    return run.engine.num_processes, run.accelerator.num_processes


def test_a_group_of_accelerate_is_used(tmp_path: Path) -> None:
    assert values(in_processes(2, tmp_path, after_accelerate, tmp_path)) == [(2, 2)] * 2


def with_a_number_of_the_group_alone(folder: Path) -> Any:
    index = int(os.environ.pop("RANK"))
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=index, world_size=2)
    run = runs.trainer(folder)
    run.train()
    return run.engine.num_processes, run.args.process_index


def test_a_launcher_that_leaves_the_number_to_the_group(tmp_path: Path) -> None:
    """accelerate's debug_launcher says WORLD_SIZE and no RANK."""
    assert values(in_processes(2, tmp_path, with_a_number_of_the_group_alone, tmp_path)) == [(2, 0), (2, 1)]


def contradicting(folder: Path) -> Any:
    dist.init_process_group("gloo", init_method=f"file://{folder}/{os.environ['RANK']}", rank=0, world_size=1)
    return runs.trainer(folder)


def test_a_group_that_contradicts_the_launcher_is_refused(tmp_path: Path) -> None:
    ended = in_processes(2, tmp_path, contradicting, tmp_path)
    assert [one.error for one in ended] == ["SettingError"] * 2
    assert "process 1 of 2 (RANK, WORLD_SIZE), and the process group that exists says 0 of 1" in ended[1].words


def first_then_others(folder: Path) -> list[float]:
    times = [time.monotonic()]
    args = arguments(folder)
    with args.main_process_first(desc="a cache"):
        times.append(time.monotonic())
        if args.process_index == 0:
            time.sleep(0.5)
        times.append(time.monotonic())
    return times


def test_the_first_process_fills_a_cache(tmp_path: Path) -> None:
    one, other = values(in_processes(2, tmp_path, first_then_others, tmp_path))
    assert other[1] >= one[2], "the block of the others begins when the first has ended its own"


def test_a_launcher_that_does_not_say_where_to_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SettingError, match="MASTER_PORT"):
        runs.trainer(tmp_path)


def test_several_processes_of_which_one_was_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `accelerate launch --cpu --num_processes 2` leaves in the environment."""
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    for name, value in {"ACCELERATE_USE_CPU": "True", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingError, match="has started one"):
        runs.trainer(tmp_path)


SCRIPT = """
import sys
sys.path[:0] = {path!r}
import torch
from trainer import runs
run = runs.trainer(sys.argv[1], max_steps=2, per_device_train_batch_size=2)
run.train()
which = f"process {{run.args.process_index}} of {{run.args.world_size}}"
sys.stdout.write(f"{{which}} {{type(run.engine).__name__}}\\n")  # at once: the other process writes beside it
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "launcher",
    [
        ["torch.distributed.run", "--nproc_per_node=2", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0"],
        ["accelerate.commands.launch", "--multi_gpu", "--num_processes=2", "--num_machines=1", "--mixed_precision=no",
         "--dynamo_backend=no", "--main_process_port=0"],
    ],
    ids=["torchrun", "accelerate"],
)  # fmt: skip
def test_launchers(launcher: list[str], tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(path=[part for part in sys.path if part]))
    command = [sys.executable, "-m", *launcher, str(script), str(tmp_path / "out")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    said = sorted(line for line in done.stdout.splitlines() if line.startswith("process"))
    assert said == ["process 0 of 2 DDPEngine", "process 1 of 2 DDPEngine"]
    assert done.stdout.count("step 2/2") == 2, "one line of training and one summary, by one process"
