"""Who reads which parts of a stream, and which of their rows are whose."""

from __future__ import annotations

import datasets
import pytest

from burnish.core.errors import SettingError
from burnish.data.share import Share
from burnish.data.stream_parts import can_be_read, own_parts, part_of, refuse_uneven, share_within, states_of_all


@pytest.mark.parametrize("parts", [1, 2, 4, 6])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 8])
def test_each_part_is_read_and_shared_by_equally_many(parts: int, count: int) -> None:
    if not can_be_read(parts, count):
        assert parts % count and count % parts
        return
    readers: dict[int, list[tuple[int, int]]] = {number: [] for number in range(parts)}
    for index in range(count):
        share = Share(index, count)
        for number in own_parts(share, parts):
            within = share_within(share, parts)
            readers[number].append((within.index, within.count))
    each = max(1, count // parts)
    assert all(sorted(of_part) == [(index, each) for index in range(each)] for of_part in readers.values())


def test_parts_are_shards() -> None:
    stream = datasets.Dataset.from_dict({"x": list(range(12))}).to_iterable_dataset(num_shards=4)
    rows = [[row["x"] for row in part_of(stream, number, 2)] for number in (0, 1)]
    assert [len(part) for part in rows] == [6, 6] and sorted(rows[0] + rows[1]) == list(range(12))
    assert part_of(stream, 0, 1) is stream
    refuse_uneven(stream, 4)
    refuse_uneven([1], 1)
    with pytest.raises(SettingError, match="has 4 shards: 3 processes need a multiple"):
        refuse_uneven(stream, 3)
    with pytest.raises(SettingError, match="is no stream of `datasets`"):
        refuse_uneven([1], 2)


def test_what_each_process_knows_is_put_together() -> None:
    assert states_of_all([{"0": {"at": 1}}, None, {"1": None}]) == {"0": {"at": 1}, "1": None}
