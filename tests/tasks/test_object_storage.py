"""Data files of an S3 server and of a web server, both on this machine: as a user names them."""

from __future__ import annotations

import functools
import gzip
import http.server
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import pytest

from burnish.cli.fingerprints import fingerprint
from burnish.core.errors import DataError
from burnish.data.stream_state import placed, state_of
from burnish.tasks.files import read_table

ROWS = [{"text": f"row {number}", "label": "ab"[number % 2]} for number in range(6)]


def lines(rows: list[Any]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))


# ---------------------------------------------------------------- S3


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    pytest.importorskip("s3fs")
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An empty bucket that is reached by what the environment says."""
    import boto3
    import s3fs

    for name, value in (("ENDPOINT_URL", endpoint), ("ACCESS_KEY_ID", "k"), ("SECRET_ACCESS_KEY", "s")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    s3fs.S3FileSystem.clear_instance_cache()
    found = boto3.resource("s3").Bucket("rows")
    found.create()
    found.objects.all().delete()
    return found


def test_files_of_a_bucket(bucket: Any, tmp_path: Path) -> None:
    datasets.Dataset.from_list(ROWS[:2]).to_parquet(str(tmp_path / "rows.parquet"))
    bucket.put_object(Key="p/rows-0.parquet", Body=(tmp_path / "rows.parquet").read_bytes())
    for number in (0, 1, 2):
        body = lines(ROWS[2 * number : 2 * number + 2])
        bucket.put_object(Key=f"j/rows-{number}.jsonl", Body=body)
        bucket.put_object(Key=f"z/rows-{number}.jsonl.gz", Body=gzip.compress(body))
    assert read_table("s3://rows/p/*.parquet").to_list() == ROWS[:2]
    assert read_table("s3://rows/j/rows-*.jsonl").to_list() == read_table("s3://rows/z/*.gz").to_list() == ROWS
    bucket.put_object(Key="j/rows-1.jsonl", Body=lines(ROWS[:1]))
    bucket.Object("j/rows-2.jsonl").delete()
    assert read_table("s3://rows/j/rows-*.jsonl").to_list() == [*ROWS[:2], ROWS[0]], "changed, and taken away"


def test_what_is_missing_or_out_of_reach_in_a_storage(
    bucket: Any, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("s3://rows/none.jsonl", "s3://rows/none-*.jsonl", "s3://nowhere/none.jsonl", "s3://nowhere/*.jsonl"):
        with pytest.raises(DataError, match=r"there is no (such file|file of that name)"):
            read_table(name)
    bucket.put_object(Key="rows.jsonl", Body=lines(ROWS))
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint.rpartition(":")[0] + ":9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    import s3fs

    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(DataError, match=r"s3://rows/rows.jsonl could not be read .* Set AWS_ACCESS_KEY_ID"):
        read_table("s3://rows/rows.jsonl")


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_a_stream_from_a_bucket_goes_on_from_its_state(form: str, bucket: Any, tmp_path: Path) -> None:
    for number in (0, 1):
        part = datasets.Dataset.from_list(ROWS[3 * number : 3 * number + 3])
        file = tmp_path / f"rows.{form}"
        part.to_json(file) if form == "json" else part.to_parquet(str(file))
        bucket.put_object(Key=f"{number}.{form}", Body=file.read_bytes())

    def stream() -> datasets.IterableDataset:
        return datasets.load_dataset(form, data_files=f"s3://rows/*.{form}", split="train", streaming=True)

    read = stream()
    rows = iter(read)
    assert [next(rows) for _ in range(4)] == ROWS[:4] and read.num_shards == 2
    with placed(again := stream(), state_of(read)):
        assert list(again) == ROWS[4:]


# ---------------------------------------------------------------- the web


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A server of files that says when they were changed or not, and refuses one of them."""

    says_dates = True

    def do_GET(self) -> None:
        self.send_error(403) if "private" in self.path else super().do_GET()

    do_HEAD = do_GET

    def send_header(self, keyword: str, value: str) -> None:
        if self.says_dates or keyword != "Last-Modified":
            super().send_header(keyword, value)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def web(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """An address, and the folder that is served there."""
    pytest.importorskip("aiohttp")
    folder = tmp_path / "www"
    folder.mkdir()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", folder
    server.shutdown()
    thread.join()
    server.server_close()


def test_files_of_the_web(web: tuple[str, Path]) -> None:
    address, folder = web
    for number in (0, 1):
        (folder / f"rows-{number}.jsonl").write_bytes(lines(ROWS[3 * number : 3 * number + 3]))
    assert read_table(f"{address}/rows-1.jsonl").to_list() == ROWS[3:]
    assert read_table(f"{address}/rows-*.jsonl").to_list() == ROWS
    signed = f"{address}/rows-0.jsonl?download=true&X-Amz-Signature=5e"
    assert read_table(signed).to_list() == ROWS[:3]
    assert fingerprint(signed)["path"] == signed.replace("5e", "<SIGNATURE>"), "not written down"


@pytest.mark.parametrize("says_dates", [True, False])
def test_a_file_of_the_web_that_changes(
    says_dates: bool, web: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same size."""
    address, folder = web
    monkeypatch.setattr(Quiet, "says_dates", says_dates)
    for number in (0, 1):
        (folder / "rows.jsonl").write_bytes(lines(ROWS[number : number + 1]))
        os.utime(folder / "rows.jsonl", (time.time() - 100 + 10 * number,) * 2)
        assert read_table(f"{address}/rows.jsonl").to_list() == ROWS[number : number + 1]


def test_what_is_missing_or_out_of_reach_on_the_web(web: tuple[str, Path]) -> None:
    address, _ = web
    for name, words in (
        (f"{address}/none.jsonl", "none.jsonl: there is no such file"),
        (f"{address}/none-*.jsonl", "there is no file of that name"),
        (f"{address}/private.jsonl?sig=5e", r"private.jsonl\?sig=<SIGNATURE> could not be read .*403"),
        ("http://127.0.0.1:9/rows.jsonl", "rows.jsonl could not be read .*Cannot connect"),
    ):
        with pytest.raises(DataError, match=words) as told:
            read_table(name)
        assert "5e" not in str(told.value)
