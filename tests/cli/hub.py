"""A stand-in for the Hugging Face hub: what uploads and downloads need of its HTTP API, on this machine."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_not_a_real_token"


@dataclass
class Hub:
    """The hub's state, and how it is to misbehave."""

    address: str = ""
    exists: bool = False
    private: bool = False
    lfs: tuple[str, ...] = ()
    """Files that it wants in its store for large files."""
    ignores: tuple[str, ...] = ()
    """Files that the repository's .gitignore keeps out."""
    refusals: dict[str, int] = field(default_factory=dict)
    """Status by the first word that occurs in the path."""
    created: list[dict[str, Any]] = field(default_factory=list)
    branches: list[str] = field(default_factory=list)
    stored: dict[str, bytes] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    commits: list[dict[str, Any]] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    tokens: dict[str, str | None] = field(default_factory=dict)
    """Who said to be logged in, by method and path."""

    def answer(self, method: str, target: str, body: bytes) -> tuple[int, Any]:
        path = unquote(urlsplit(target).path)
        self.requests.append(f"{method} {path}")
        for word, status in self.refusals.items():
            if word in path:
                return status, {"error": "as told by the test", "url": f"{self.address}/me/net"}
        if path == "/api/repos/create":
            self.created.append(json.loads(body))
            return 409 if self.exists else 200, {"url": f"{self.address}/me/net"}
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}
        if "/branch/" in path:
            self.branches.append(path.partition("/branch/")[2])
            return 200, {}
        if "/preupload/" in path:
            return 200, {"files": [self._mode(file["path"]) for file in json.loads(body)["files"]]}
        if path.endswith("/info/lfs/objects/batch"):
            return 200, {"transfer": "basic", "objects": [self._place(o) for o in json.loads(body)["objects"]]}
        if path.startswith("/store/"):
            self.stored[path.removeprefix("/store/")] = body
            return 200, {}
        if "/commit/" in path:
            self._commit(path.partition("/commit/")[2], [json.loads(line) for line in body.splitlines()])
            return 200, {"success": True, "commitOid": COMMIT, "commitUrl": f"{self.address}/me/net/commit/{COMMIT}"}
        if "/paths-info/" in path:
            return 200, [self._description(name) for name in parse_qs(body.decode())["paths"] if name in self.files]
        if path == "/api/models/me/net" and (self.exists or self.created):
            return 200, {"id": "me/net", "private": self.private, "siblings": []}
        return 404, {"error": f"no {path} here"}

    def file(self, target: str) -> tuple[int, dict[str, str], bytes] | None:
        """The answer to one who wants a file: status, headers, content; None if something else is asked."""
        path = unquote(urlsplit(target).path)
        repository, found, rest = path.partition("/resolve/")
        if not found:
            return None
        self.requests.append(f"GET {path}")
        revision, _, name = rest.partition("/")
        if repository != "/me/net" or not self.files:
            return 404, {"X-Error-Code": "RepoNotFound"}, b""
        if revision not in ("main", COMMIT, *self.branches):
            return 404, {"X-Error-Code": "RevisionNotFound"}, b""
        if name not in self.files:
            return 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT}, b""
        content = self.files[name]
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{hashlib.sha256(content).hexdigest()}"'}
        return 200, headers, content

    def _mode(self, name: str) -> dict[str, Any]:
        mode = "lfs" if name in self.lfs else "regular"
        return {"path": name, "uploadMode": mode, "shouldIgnore": name in self.ignores}

    def _place(self, item: dict[str, Any]) -> dict[str, Any]:
        return item | {"actions": {"upload": {"href": f"{self.address}/store/{item['oid']}"}}}

    def _commit(self, revision: str, lines: list[dict[str, Any]]) -> None:
        header, *files = lines
        self.commits.append({"revision": revision, "summary": header["value"]["summary"]})
        for line in files:
            value = line["value"]
            if line["key"] == "lfsFile":
                self.files[value["path"]] = self.stored[value["oid"]]
            else:
                assert line["key"] == "file"
                assert value["encoding"] == "base64"
                self.files[value["path"]] = base64.b64decode(value["content"])

    def _description(self, name: str) -> dict[str, Any]:
        content = self.files[name]
        blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        told = {"type": "file", "path": name, "size": len(content), "oid": blob}
        if name in self.lfs:
            digest = hashlib.sha256(content).hexdigest()
            told["lfs"] = {"oid": digest, "size": len(content), "pointerSize": 134}
        return told


@contextmanager
def running(hub: Hub) -> Iterator[Hub]:
    """Serve it on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def _reply(self) -> None:
            hub.tokens[f"{self.command} {self.path}"] = self.headers.get("Authorization")
            body = self._body()
            if (file := hub.file(self.path)) is not None:
                status, headers, content = file
            else:
                status, document = hub.answer(self.command, self.path, body)
                headers, content = {"Content-Type": "application/json"}, json.dumps(document).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        do_GET = do_HEAD = do_POST = do_PUT = _reply  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Tests have nothing to read on the terminal."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
