"""A server for tests that speaks a model's HTTP interface and returns canned text. It is no model."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

USAGE = {"input_tokens": 120, "output_tokens": 34, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}


class ModelServer:
    """Answers every message with the HANDBACK of the task that the message is about, and keeps what it was asked.

    ``refusal`` makes it say, with status 429, that its user's limit is reached.
    """

    def __init__(self, *, refusal: str | None = None) -> None:
        self.asked: list[dict[str, Any]] = []
        self.refusal = refusal
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if "/messages" not in self.path or self.path.split("?")[0].endswith("count_tokens"):
                    self._send({"input_tokens": 120})
                    return
                server.asked.append(body)
                if server.refusal is not None:
                    error = {"type": "rate_limit_error", "message": server.refusal}
                    self._send({"type": "error", "error": error}, status=429)
                    return
                text = _answer(json.dumps(body["messages"]))
                if body.get("stream"):
                    self._stream(body["model"], text)
                else:
                    self._send(_message(body["model"]) | {"content": [{"type": "text", "text": text}]})

            def do_GET(self) -> None:
                self._send({})

            def do_HEAD(self) -> None:
                self._send({})

            def _send(self, values: dict[str, Any], status: int = 200) -> None:
                data = json.dumps(values).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                if status == 429:
                    self.send_header("x-should-retry", "false")
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            def _stream(self, model: str, text: str) -> None:
                block = {"type": "text", "text": ""}
                steps: list[dict[str, Any]] = [
                    {"type": "message_start", "message": _message(model) | {"stop_reason": None}},
                    {"type": "content_block_start", "index": 0, "content_block": block},
                    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
                    {"type": "content_block_stop", "index": 0},
                    {
                        "type": "message_delta",
                        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
                        "usage": USAGE,
                    },
                    {"type": "message_stop"},
                ]
                data = "".join(f"event: {step['type']}\ndata: {json.dumps(step)}\n\n" for step in steps).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self) -> ModelServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _message(model: str) -> dict[str, Any]:
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [],
        "stop_reason": "end_turn", "stop_sequence": None, "usage": USAGE,
    }  # fmt: skip


def _answer(said: str) -> str:
    found = re.search(r"task_id: ([\w.-]+)", said)
    id = found[1] if found else "unknown"
    return (
        "I have looked at it.\n\n```yaml\nhandoff_type: HANDBACK\n"
        f"task_id: {id}\nstatus: success\noutput: it is as it should be\nconfidence: 0.9\n```\n"
    )
