"""A hub on this machine, of as much as `huggingface_hub` asks of one when it uploads and downloads a model."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

TOKEN = "hf_" + "t" * 30
OWNER = "me"
LARGE = (".safetensors", ".pt", ".pth", ".bin")


@dataclass
class Repo:
    private: bool
    branches: dict[str, dict[str, bytes]] = field(default_factory=lambda: {"main": {".gitattributes": b""}})
    commits: list[tuple[str, str]] = field(default_factory=list)
    """(branch, message), oldest first."""


@dataclass
class Hub:
    """What the server holds, and how it misbehaves.

    Attributes:
        fails: part of a path to (code, how often, words) of the error that is answered to it.
        seconds: how long each file takes that is uploaded.
        writable: owners to whose repositories the token may write.
    """

    url: str = ""
    repos: dict[str, Repo] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    fails: dict[str, tuple[int, int, str]] = field(default_factory=dict)
    seconds: float = 0.0
    writable: set[str] = field(default_factory=lambda: {OWNER})
    asked: list[tuple[str, str]] = field(default_factory=list)
    """(method, path), in the order of asking."""
    uploaded: list[str] = field(default_factory=list)
    """Checksums of the blobs that were sent, in their order."""
    is_gone: bool = False
    at_commit: Callable[[], None] = lambda: None
    at_blob: Callable[[], None] = lambda: None
    stop: Callable[[], None] = lambda: None

    def files(self, name: str, branch: str = "main", below: str = "") -> dict[str, bytes]:
        found = self.repos[name].branches[branch]
        return {path[len(below) :]: content for path, content in found.items() if path.startswith(below)}

    def messages(self, name: str) -> list[str]:
        return [message for _, message in self.repos[name].commits]


class _Refused(Exception):
    def __init__(self, code: int, words: str, kind: str = "", url: str = "") -> None:
        self.code, self.words, self.kind, self.url = code, words, kind, url


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *args: Any) -> None:
        pass

    def _do(self) -> None:
        body = self._body()
        if self.hub.is_gone:
            self.close_connection = True
            return
        path = urlsplit(self.path).path
        self.hub.asked.append((self.command, path))
        try:
            self._fail_where_told(path)
            self._answer(200, *self._route(path, body))
        except _Refused as refused:
            headers = {"X-Error-Message": refused.words} | ({"X-Error-Code": refused.kind} if refused.kind else {})
            self._answer(refused.code, {"error": refused.words, "url": refused.url}, headers)

    do_GET = do_POST = do_PUT = do_HEAD = _do

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _answer(self, code: int, content: Any, headers: dict[str, str] | None = None) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(code)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        with suppress(ConnectionError):  # whoever asked may be gone
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

    def _fail_where_told(self, path: str) -> None:
        for part, (code, times, words) in self.hub.fails.items():
            if part in path and times:
                self.hub.fails[part] = (code, times - 1, words)
                raise _Refused(code, words)

    def _route(self, path: str, body: bytes) -> tuple[Any, dict[str, str]]:
        if path.startswith("/blob/"):
            return self._store(path.removeprefix("/blob/"), body), {}
        if "/resolve/" in path:
            return self._resolve(path)
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            raise _Refused(401, "Invalid username or password.")
        content = json.loads(body) if body and "/commit/" not in path else {}
        if path == "/api/repos/create":
            return self._create(content), {}
        if path == "/api/validate-yaml":
            return {"warnings": [], "errors": []}, {}
        if path.endswith(".git/info/lfs/objects/batch"):
            return self._batch(content), {}
        if path.count("/") < 5 or not path.startswith("/api/models/"):
            raise _Refused(404, f"There is no {path}")
        _, _, _, owner, name, asked, *rest = map(unquote, path.split("/"))
        repo = self.hub.repos.get(f"{owner}/{name}")
        if repo is None:
            raise _Refused(404, "Repository not found", "RepoNotFound")
        if asked == "auth-check":
            self._check_owner(owner)
            return {}, {}
        if asked == "branch":
            repo.branches.setdefault(rest[0], dict(repo.branches["main"]))
            return {}, {}
        branch = "main" if rest[0] == _sha(repo) else rest[0]
        if branch not in repo.branches:
            raise _Refused(404, f"Invalid rev id: {branch}", "RevisionNotFound")
        files = repo.branches[branch]
        if asked == "revision":
            return {"id": f"{owner}/{name}", "sha": _sha(repo), "siblings": [{"rfilename": one} for one in files]}, {}
        if asked == "tree":
            return [
                {"type": "file", "path": path, "size": len(data), "oid": _git(data)} for path, data in files.items()
            ], {}
        self._check_owner(owner)
        if asked == "preupload":
            return {"files": [_mode(one["path"], files) for one in content["files"]]}, {}
        assert asked == "commit", path
        return self._commit(f"{owner}/{name}", repo, branch, body), {}

    def _check_owner(self, owner: str) -> None:
        if owner not in self.hub.writable:
            raise _Refused(403, f"You don't have the rights to write to {owner}.")

    def _create(self, content: dict[str, Any]) -> dict[str, str]:
        owner = content.get("organization") or OWNER
        name = f"{owner}/{content['name']}"
        if name in self.hub.repos:
            raise _Refused(409, "You already created this model repo", url=f"{self.hub.url}/{name}")
        self._check_owner(owner)
        self.hub.repos[name] = Repo(private=content.get("visibility") == "private")
        return {"url": f"{self.hub.url}/{name}"}

    def _batch(self, content: dict[str, Any]) -> dict[str, Any]:
        objects = []
        for one in content["objects"]:
            upload = {"upload": {"href": f"{self.hub.url}/blob/{one['oid']}"}}
            objects.append({**one, **({} if one["oid"] in self.hub.blobs else {"actions": upload})})
        return {"transfer": "basic", "objects": objects}

    def _store(self, checksum: str, body: bytes) -> dict[str, Any]:
        time.sleep(self.hub.seconds)
        self.hub.at_blob()
        assert hashlib.sha256(body).hexdigest() == checksum
        self.hub.uploaded.append(checksum)
        self.hub.blobs[checksum] = body
        return {}

    def _commit(self, name: str, repo: Repo, branch: str, body: bytes) -> dict[str, Any]:
        files, message = dict(repo.branches[branch]), ""
        for line in body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "header":
                message = value["summary"]
            elif entry["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                files[value["path"]] = self.hub.blobs[value["oid"]]
            else:
                assert entry["key"] == "deletedFile", entry
                del files[value["path"]]
        self.hub.at_commit()
        repo.branches[branch] = files
        repo.commits.append((branch, message))
        url = f"{self.hub.url}/{name}/commit/{_sha(repo)}"
        return {"success": True, "commitOid": _sha(repo), "commitUrl": url}

    def _resolve(self, path: str) -> tuple[Any, dict[str, str]]:
        name, _, rest = path.lstrip("/").partition("/resolve/")
        branch, _, file = map(unquote, rest.partition("/"))
        repo = self.hub.repos[name]
        data = repo.branches["main" if branch == _sha(repo) else branch].get(file)
        if data is None:
            raise _Refused(404, "Entry not found", "EntryNotFound")
        return data, {
            "X-Repo-Commit": _sha(repo),
            "ETag": f'"{_git(data)}"',
            "Content-Type": "application/octet-stream",
        }


def _mode(path: str, files: dict[str, bytes]) -> dict[str, Any]:
    is_large = path.endswith(LARGE)
    there = files.get(path)
    oid = None if there is None else hashlib.sha256(there).hexdigest() if is_large else _git(there)
    return {"path": path, "uploadMode": "lfs" if is_large else "regular", "shouldIgnore": False, "oid": oid}


def _git(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def _sha(repo: Repo) -> str:
    return hashlib.sha1(str(len(repo.commits)).encode()).hexdigest()


@contextmanager
def serving() -> Iterator[Hub]:
    """A hub that answers on a port of this machine."""
    hub = Hub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()

    def stop() -> None:
        hub.is_gone = True
        server.shutdown()
        server.server_close()

    hub.stop = stop
    try:
        yield hub
    finally:
        stop()


@contextmanager
def local_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub that the client in this process talks to."""
    from huggingface_hub import constants
    from huggingface_hub.utils import _http

    with serving() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(_http, "time", SimpleNamespace(sleep=lambda seconds: None))  # tries again without waiting
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        _http.close_session()
        yield hub
        _http.close_session()
