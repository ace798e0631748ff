"""The schema in an editor: what yaml-language-server, which editors ask, says of a scenario with mistakes.

`npm install -g yaml-language-server` brings it; $YAML_LANGUAGE_SERVER names another place.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SERVER = os.environ.get("YAML_LANGUAGE_SERVER") or shutil.which("yaml-language-server")
pytestmark = [pytest.mark.machine, pytest.mark.slow,
              pytest.mark.skipif(SERVER is None, reason="yaml-language-server is not installed (npm)")]

TEXT = """# yaml-language-server: $schema=emul.schema.json
emul: 1
name: small
seed: 7
topology: {generator: star, clients: 3}
links:
  - match: "*"
    latency: 20 ms
task:
  data: {set: digits}
  model: logistic
  solver: {sgd: {lr: 0.1, steps: 1, batch: 16}}
compute: {mode: zero}
schemes:
  - fedavg
stop: {rounds: 2}
"""


class LanguageServer:
    """A server on its standard streams, as editors start it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._number = 0
        self._process = subprocess.Popen([str(SERVER), "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.ask("initialize", processId=None, rootUri=folder.as_uri(), capabilities={})
        self._send({"method": "initialized", "params": {}})

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, method: str, **params: Any) -> Any:
        """The answer to a request."""
        self._number += 1
        self._send({"id": self._number, "method": method, "params": params})
        return next(one["result"] for one in self._heard() if one.get("id") == self._number and "method" not in one)

    def open(self, name: str, text: str) -> list[str]:
        """What it complains of in a file, a line each: the line that is meant, and the message."""
        uri = (self.folder / name).as_uri()
        self._send({"method": "textDocument/didOpen", "params": {
            "textDocument": {"uri": uri, "languageId": "yaml", "version": 1, "text": text}}})
        found = next(one["params"] for one in self._heard() if one.get("method") == "textDocument/publishDiagnostics"
                     and one["params"]["uri"] == uri)
        return [f"{text.splitlines()[one['range']['start']['line']].strip()}: {one['message']}"
                for one in found["diagnostics"]]

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self._process.stdin is not None
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self._process.stdin.flush()

    def _heard(self) -> Iterator[dict[str, Any]]:
        """Messages as they come; requests of the server are answered with nothing."""
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            length = 0
            while line.strip():
                name, _, value = line.decode().partition(":")
                length = int(value) if name.lower() == "content-length" else length
                line = self._process.stdout.readline()
            message = json.loads(self._process.stdout.read(length))
            if "id" in message and "method" in message:
                self._send({"id": message["id"], "result": None})
            yield message


@pytest.fixture(scope="module")
def editor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageServer]:
    folder = tmp_path_factory.mktemp("editor")
    shutil.copy(ROOT / "emul.schema.json", folder)
    server = LanguageServer(folder)
    yield server
    server.close()


@pytest.mark.timeout(120)
def test_an_editor_tells_the_nearest_name_and_the_unit_at_their_lines(editor: LanguageServer) -> None:
    assert editor.open("sound.yaml", TEXT) == []
    for k, (right, wrong, line, said) in enumerate([
            ("model: logistic", "model: logistik", "model: logistik", 'did you mean "logistic"?'),
            ("set: digits", "set: digts", "data: {set: digts}", 'did you mean "digits"?'),
            ("- fedavg", "- fedvag", "- fedvag", 'did you mean "fedavg"?'),
            ("latency: 20 ms", "latency: 20", "latency: 20", ""),
            ("stop:", "stopp:", "stopp: {rounds: 2}", "stopp")]):
        found = editor.open(f"wrong{k}.yaml", TEXT.replace(right, wrong))
        assert any(one.startswith(f"{line}: ") and said in one for one in found), (wrong, found)
    assert editor.open("own.yaml", TEXT.replace("model: logistic", "model: my_net")) == []


@pytest.mark.timeout(120)
def test_an_editor_offers_the_names_and_tells_what_a_key_means(editor: LanguageServer) -> None:
    text = TEXT.replace("model: logistic", "model: ")
    editor.open("names.yaml", text)
    where = {"textDocument": {"uri": (editor.folder / "names.yaml").as_uri()}}
    line = text.splitlines().index("  model: ")
    found = editor.ask("textDocument/completion", **where, position={"line": line, "character": len("  model: ")})
    items = found["items"] if isinstance(found, dict) else found
    assert {"logistic", "digits_cnn"} <= {one["label"] for one in items}
    line = text.splitlines().index("seed: 7")
    said = editor.ask("textDocument/hover", **where, position={"line": line, "character": 1})
    assert "of every random choice" in json.dumps(said)
