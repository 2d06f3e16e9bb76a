"""The model of a checkpoint, whole, in a folder of its own: by one process that never holds more than one tensor.

So files are written here, tensor by tensor: safetensors writes what is in memory whole, and what torch has to put parts
together (`torch.distributed.checkpoint`) reads all of them, those of the optimizer too.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import torch

from burnish.core.errors import CheckpointError

from . import export, files, in_use, layout, parts, verify
from .pretrained import say_type
from .store import told_as

LARGEST_FILE = 50 * 10**9
"""Bytes of weights in a file; further ones go into another. The hub takes no larger ones."""
OF_THE_RUN = {
    *(layout.TRAINER_STATE, layout.OPTIMIZER, layout.SCHEDULER, layout.SCALER, layout.TRAINING_ARGS),
    *(layout.BURNISH, layout.MANIFEST),
}
"""Files of a checkpoint that are not the model's; beside them random states, and folders."""


@dataclass
class Whole:
    """A weight that lies in parts."""

    name: str
    dtype: str
    """As safetensors calls it."""
    chunks: list[tuple[Path, list[int], list[int]]] = field(default_factory=list)
    """Of each part its file, where it begins in the whole, and its shape."""

    @property
    def shape(self) -> list[int]:
        ends = ([begin + size for begin, size in zip(*place, strict=True)] for _, *place in self.chunks)
        return [max(sizes) for sizes in zip(*ends, strict=True)]

    def read(self) -> torch.Tensor:
        """All of it. Raises `CheckpointError` where rows before the last ones are missing."""
        from safetensors import safe_open

        found: torch.Tensor | None = None
        for path, offsets, shape in self.chunks:
            with safe_open(path, framework="pt", device="cpu") as file:
                part = file.get_tensor(f"{parts.MODEL}{self.name}")
            found = torch.empty(self.shape, dtype=part.dtype) if found is None else found
            found[tuple(slice(begin, begin + size) for begin, size in zip(offsets, shape, strict=True))] = part
        if found is None or sum(math.prod(shape) for _, _, shape in self.chunks) != found.numel():
            raise CheckpointError(f"The parts of {self.name} do not make a whole of the shape {self.shape}.")
        return found


def merge(checkpoint: Path | str, folder: Path | str, largest_file: int = LARGEST_FILE) -> list[str]:
    """Writes the model of a checkpoint into `folder`, so that ``from_pretrained(folder)`` loads it, and returns the
    names of its files. A checkpoint that holds a whole model gives it as it is.

    Weights have the names that they have in the model. Of those with several names, transformers finds the others by
    itself where the model's class ties them; elsewhere each is written under all of its names.

    Raises:
        CheckpointError: the checkpoint is damaged, holds adapters, or the model cannot be written; one that was in the
            folder before is still there.
    """
    checkpoint, folder = Path(checkpoint), Path(folder)
    if (folder / layout.MANIFEST).exists():
        raise CheckpointError(f"{folder} is a checkpoint, which must stay as it is. Choose another folder.")
    with in_use.held(checkpoint):
        problem = verify.problem_with(checkpoint)
        if problem is not None:
            raise CheckpointError(f"{checkpoint} is no good checkpoint: {problem}.")
        if layout.adapter_folders(checkpoint):
            raise CheckpointError(
                f"{checkpoint} holds adapters, whole, without the model below them: peft loads them from there, and "
                "its merge_and_unload() makes one model of both."
            )
        draft = export.draft_for(folder)
        with told_as(folder):
            try:
                _copy(checkpoint, draft)
                if not layout.holds_weights(checkpoint):
                    _write_weights(checkpoint, draft, largest_file)
            except BaseException:
                shutil.rmtree(draft, ignore_errors=True)
                raise
        return export.take_in(draft, folder)


def _copy(checkpoint: Path, draft: Path) -> None:
    for path in checkpoint.iterdir():
        if path.is_file() and path.name not in OF_THE_RUN and not path.name.startswith(Path(layout.RNG_STATE).stem):
            shutil.copyfile(path, draft / path.name)


def _write_weights(checkpoint: Path, draft: Path, largest_file: int) -> None:
    found, shared = _in_parts(checkpoint)
    if not found:
        raise CheckpointError(f"{checkpoint} holds no weights, whole or in parts.")
    names = {name: name for name in found}
    if shared:
        tied = _tied_by_class(checkpoint)
        names |= {name: first for name, first in shared.items() if name not in tied and first not in tied}
    groups = _groups({name: found[first] for name, first in names.items()}, largest_file)
    kinds: set[torch.dtype] = set()
    places: dict[str, str] = {}
    for number, group in enumerate(groups, start=1):
        file = layout.WEIGHTS
        if len(groups) > 1:
            file = f"model-{number:05}-of-{len(groups):05}.safetensors"
        kinds |= _write_file(draft / file, group)
        places |= dict.fromkeys(group, file)
    if len(groups) > 1:
        total = sum(map(_bytes_of, (one for group in groups for one in group.values())))
        index = {"metadata": {"total_size": total}, "weight_map": places}
        (draft / layout.WEIGHTS_INDEX).write_text(files.as_json(index), encoding="utf-8")
    if len(kinds) == 1:
        say_type(draft / "config.json", kinds.pop())


def _in_parts(checkpoint: Path) -> tuple[dict[str, Whole], dict[str, str]]:
    """The weights by name, and to each further name of a weight the one under which it is found. Raises
    `CheckpointError` where the part of a process is missing."""
    from safetensors import safe_open

    found: dict[str, Whole] = {}
    shared: dict[str, str] = {}
    paths = sorted((checkpoint / layout.PARTS).glob("*.safetensors"))
    counts = {int(path.stem.rpartition("-")[2]) for path in paths if path.name.startswith("part-")}
    if counts - {len(paths)}:  # without the last rows a whole would only be smaller
        raise CheckpointError(f"{checkpoint} holds {len(paths)} parts of {max(counts)}.")
    for path in paths:
        with safe_open(path, framework="pt", device="cpu") as file:
            said = file.metadata() or {}
            places = json.loads(said.get(parts.PLACES, "{}"))
            shared |= json.loads(said.get(parts.SHARED, "{}"))
            for key in file.keys():  # noqa: SIM118 (no mapping)
                if key.startswith(parts.MODEL):
                    part, name = file.get_slice(key), key.removeprefix(parts.MODEL)
                    chunk = path, places[key]["saved_offsets"], part.get_shape()
                    found.setdefault(name, Whole(name, part.get_dtype())).chunks.append(chunk)
    return found, shared


def _tied_by_class(checkpoint: Path) -> set[str]:
    """The names of weights that a model of the checkpoint's class ties to others by itself; none for a class that is
    not of transformers."""
    import transformers

    config = checkpoint / "config.json"
    names = files.read_json(config).get("architectures") if config.is_file() else None
    kind: Any = getattr(transformers, names[0], None) if names else None
    if kind is None:
        return set()
    with torch.device("meta"):
        model = kind(kind.config_class.from_pretrained(checkpoint))
    return set(getattr(model, "all_tied_weights_keys", None) or {})


def _groups(found: Mapping[str, Whole], largest_file: int) -> list[dict[str, Whole]]:
    """What goes into each file, in order; at least one weight."""
    groups: list[dict[str, Whole]] = []
    room = 0
    for name, one in found.items():
        size = _bytes_of(one)
        if not groups or size > room:
            groups.append({})
            room = largest_file
        groups[-1][name] = one
        room -= size
    return groups


def _bytes_of(one: Whole) -> int:
    return math.prod(one.shape) * _WIDTHS[one.dtype]


_WIDTHS = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2"), 1),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 2),
    **dict.fromkeys(("I32", "U32", "F32"), 4),
    **dict.fromkeys(("I64", "U64", "F64", "C64"), 8),
}
"""Bytes of an element, by the name of its type in safetensors."""


def _write_file(path: Path, group: Mapping[str, Whole]) -> set[torch.dtype]:
    """One file of safetensors, a tensor at a time: the length of the table of contents in 8 bytes, the table as JSON,
    the tensors one after the other. Returns the types of floating point numbers in it."""
    table: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, one in group.items():
        begin, end = end, end + _bytes_of(one)
        table[name] = {"dtype": one.dtype, "shape": one.shape, "data_offsets": [begin, end]}
    header = json.dumps(table).encode()
    header += b" " * (-len(header) % 8)  # tensors begin at a multiple of 8
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        return set(_written(file, group.values()))


def _written(file: BinaryIO, weights: Iterable[Whole]) -> Iterator[torch.dtype]:
    for one in weights:
        tensor = one.read()
        file.write(tensor.reshape(-1).view(torch.uint8).numpy().data)
        if tensor.is_floating_point():
            yield tensor.dtype
