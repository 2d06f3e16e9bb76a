"""A checkpoint to which every process adds its part: one folder, one manifest, all of it or none.

Each process writes its part and leaves a record of it in the folder: size and checksum of its files, or why there are
none. The first one waits for the records of all, adds what it alone knows, seals the folder and gives it its name. None
of this is a collective, which would get between those of the training. What has become of the parts is exchanged at the
end of a step besides, for file systems that show late what another machine has written, or take no record.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from burnish.core.errors import CheckpointError
from burnish.core.protocols import Processes

from . import copies, files, manifest, parts, process, staging, store
from .store import Snapshot

RECORD = ".part-"
"""A record in the folder, with the number of its process."""
FILES, FAILURE = "files", "failure"
"""What a record says: one of the two."""
PAUSES = 0.05, 1.0
"""Seconds between two looks for the records of the others: at first, and at most."""
WRITING, FAILED, WRITTEN = 0.0, 1.0, 2.0

Record = dict[str, Any]
T = TypeVar("T")


class Held(Protocol):
    """What the processes hold together, on its way into a checkpoint. All of them call each method."""

    def whole(self) -> dict[str, Any]:
        """What the first process is to write of it, as fields of a `Snapshot`. The others help to gather it."""
        ...

    def save(self, folder: Path) -> None:
        """Writes what has to be written by all at once, before the training goes on."""
        ...

    def part(self) -> parts.Part | None:
        """What each process writes by itself; None on all of them where there is no such thing."""
        ...


class Member(NamedTuple):
    """One of the processes that write."""

    maker: dict[str, Any]
    """See `process.this_process`."""
    bytes: int
    """Of the tensors that it writes."""
    error: CheckpointError | None


def begin(target: Path, snapshot: Snapshot, processes: Processes, held: Held) -> Begun | CheckpointError:
    """Begins the checkpoint `target`, which all processes call: all is done that they do together.

    Args:
        target: ``checkpoint-<step>`` of a folder that all processes see.

    Returns:
        What is left to write; or why nothing can be written, the same on all processes.
    """
    folder, failed = processes.from_first(
        lambda: _tried(target, lambda: store.stage(target.parent, snapshot.state.global_step, snapshot))
    )
    if folder is None:
        assert failed is not None
        return failed
    is_first = processes.index == 0
    gathered, first = _tried(target, held.whole)
    _, second = _tried(target, lambda: held.save(folder))
    part, third = _tried(target, lambda: _part_of(held, folder, is_first))
    error = first or second or third
    rest = replace(snapshot, write_model=None, **(gathered or {}))  # a user's own way was gone by all processes
    size = store.bytes_in(part.tensors) if part is not None else 0
    size += store.bytes_of(rest) if is_first and error is None else 0
    members = processes.all_of(Member(process.this_process(), size, error))
    failures = [one.error for one in members if one.error is not None]
    if failures:
        if is_first:
            shutil.rmtree(folder, ignore_errors=True)
        return failures[0]
    return Begun(folder, target, rest, part, processes, members)


def _tried(target: Path, work: Callable[[], T]) -> tuple[T | None, CheckpointError | None]:
    """What a work has given, or why it failed on this process: the others would wait for it in the next one."""
    try:
        with store.told_as(target):
            return work(), None
    except CheckpointError as error:
        return None, error


def _part_of(held: Held, folder: Path, is_first: bool) -> parts.Part | None:
    part = held.part()
    if part is not None and is_first:
        parts.make_place(folder)
    return part


@dataclass
class Begun:
    """A checkpoint that all processes have begun, as one of them knows it."""

    folder: Path
    target: Path
    snapshot: Snapshot
    """What the first process writes besides."""
    part: parts.Part | None
    processes: Processes
    members: list[Member]
    records: dict[int, Record] = field(default_factory=dict)
    """By process: its own, and on the first one those that it knows of."""
    _own: threading.Event = field(default_factory=threading.Event)
    _news: threading.Event = field(default_factory=threading.Event)
    _is_told: bool = False

    def __post_init__(self) -> None:
        self._seen = [process.is_alive(one.maker) is True for one in self.members]  # others are elsewhere
        self._changed, self._since = 0.0, time.monotonic()

    @property
    def bytes(self) -> int:
        """Of the tensors that all processes have left to write."""
        return sum(one.bytes for one in self.members)

    def copied(self, memory: copies.HostMemory) -> Begun:
        """The same with a part in the host's memory."""
        if self.part is None:
            return self
        return replace(self, part=replace(self.part, tensors=memory.copied(self.part.tensors)))

    def write_part(self) -> None:
        """What this process holds, once. A failure is left in its record."""
        index = self.processes.index
        if self.part is None or index in self.records:
            return
        try:
            names = parts.write(self.part, self.folder, index, self.processes.count)
            for name in names:
                files.sync(self.folder / name)
            record: Record = {FILES: {name: manifest.describe(self.folder / name) for name in names}}
        except Exception as error:
            record = {FAILURE: str(store.cause_of(error))}
        if index > 0:
            with contextlib.suppress(OSError):  # the first process hears of it after a step
                files.replace_json(self._record_of(index), record)
        self.records[index] = record
        self._own.set()

    def tell(self, wait: bool) -> bool:
        """After a step, called by all processes: whether all parts are written, or one could not be; then the first
        process knows which.

        Args:
            wait: for the part of this process.
        """
        if self.part is None or self._is_told:
            return True
        if wait:
            self._own.wait()
        own = self.records.get(self.processes.index)
        state = WRITING if own is None else FAILED if FAILURE in own else WRITTEN
        states = [row[0] for row in self.processes.table([state])]
        if WRITING in states and FAILED not in states:
            return False
        said = self.processes.all_of(own)
        self.records |= {index: record for index, record in enumerate(said) if record is not None}
        self._is_told = True
        self._news.set()
        return True

    def of_all(self) -> dict[str, manifest.File]:
        """On the first process: waits until all have written, and returns what they have found of their files.

        Raises:
            CheckpointError: one of them could not write, or has ended.
        """
        pause = PAUSES[0]
        while self.part is not None:
            self._look_for_records()
            for index, record in sorted(self.records.items()):
                if FAILURE in record:
                    raise CheckpointError(f"process {index}: {record[FAILURE]}")
            missing = self._missing()
            if not missing:
                break
            self._refuse_lost(missing)
            self._news.wait(pause)
            pause = min(1.5 * pause, PAUSES[1])
        for index in range(1, len(self.members)):
            self._record_of(index).unlink(missing_ok=True)
        return {name: found for record in self.records.values() for name, found in record[FILES].items()}

    def _missing(self) -> list[int]:
        return [index for index in range(len(self.members)) if index not in self.records]

    def _record_of(self, index: int) -> Path:
        return self.folder / f"{RECORD}{index}"

    def _look_for_records(self) -> None:
        for path in self.folder.glob(f"{RECORD}*"):
            with contextlib.suppress(OSError, ValueError):  # it is there the next time
                self.records.setdefault(int(path.name.removeprefix(RECORD)), files.read_json(path))

    def _refuse_lost(self, missing: list[int]) -> None:
        """Raises `CheckpointError` where a process has ended, or nothing is heard of one on another machine."""
        for index in missing:
            is_gone = self._seen[index] and process.is_alive(self.members[index].maker) is False
            if is_gone and not self._record_of(index).exists():
                raise CheckpointError(f"process {index} has ended before it had written its part")
        if all(self._seen[index] for index in missing):
            return  # they live, and so does what they write
        changed = staging.changed(self.folder)
        if changed != self._changed:
            self._changed, self._since = changed, time.monotonic()
        if time.monotonic() - self._since > staging.SIGN_OF_LIFE:
            raise CheckpointError(
                f"nothing was heard of process {missing[0]} and its part for {staging.SIGN_OF_LIFE / 60:.0f} minutes"
            )
