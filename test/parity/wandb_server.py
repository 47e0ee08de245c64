"""A server that takes what wandb sends: as much of W&B's as runs with a history need."""

import gzip
import http.server
import json
import threading
from dataclasses import dataclass, field

HISTORY, EVENTS, SUMMARY = "wandb-history.jsonl", "wandb-events.jsonl", "wandb-summary.json"


@dataclass
class WandbRun:
    project: str
    group: str | None = None
    config: dict[str, dict] = field(default_factory=dict)  # {"value": VALUE} by key
    lines: dict[str, list[str]] = field(default_factory=dict)  # by the file of the stream
    exit_code: int | None = None

    def history(self) -> list[dict]:
        return [json.loads(line) for line in self.lines.get(HISTORY, [])]

    def put(self, name: str, offset: int, content: list[str]) -> None:
        """The server's files are lines, and a chunk says at which line it begins: what was there is
        replaced."""
        lines = self.lines.setdefault(name, [])
        assert offset <= len(lines), f"{name}: line {offset} follows line {len(lines)}"
        lines[offset:offset + len(content)] = content

    def bucket(self, name: str) -> dict:
        """What a client that goes on with a run is told of it."""
        tail = {file: json.dumps(self.lines.get(file, [])[-1:]) for file in (HISTORY, EVENTS)}
        return {"id": name, "name": name, "displayName": name, "description": "", "sweepName": None,
                "project": {"id": self.project, "name": self.project, "entity": ENTITY},
                "config": json.dumps(self.config), "summaryMetrics": self.lines.get(SUMMARY, ["{}"])[-1], "tags": [], "notes": "",
                "historyLineCount": len(self.lines.get(HISTORY, [])), "historyTail": tail[HISTORY],
                "eventsLineCount": len(self.lines.get(EVENTS, [])), "eventsTail": tail[EVENTS],
                "logLineCount": 0, "wandbConfig": '{"t": {}}'}  # "t": it has begun


ENTITY = {"id": "someone", "name": "someone"}


class WandbServer:
    """Listens as long as it is entered. `runs` has the W&B runs by their ids."""

    def __init__(self) -> None:
        self.runs: dict[str, WandbRun] = {}
        self.lock = threading.Lock()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                with outer.lock:
                    answer = json.dumps(outer.answer(self.path, body)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_PUT = do_POST

            def log_message(self, *_) -> None:
                pass

        class Server(http.server.ThreadingHTTPServer):
            def handle_error(self, *_) -> None:
                """A client may hang up whenever it likes. What is wrong with a request, it is told."""

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self) -> "WandbServer":
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        self.server.shutdown()
        self.server.server_close()

    def environment(self) -> dict[str, str]:
        """With which wandb finds this server."""
        return {"WANDB_BASE_URL": self.url, "WANDB_API_KEY": "0" * 40, "WANDB_MODE": "online",
                "WANDB_ERROR_REPORTING": "false", "NO_PROXY": "127.0.0.1"}

    def answer(self, path: str, body: bytes) -> dict:
        if path.startswith("/graphql"):
            request = json.loads(body)
            return {"data": self.graphql(request["query"], request.get("variables") or {})}
        if path.endswith("/file_stream"):  # /files/ENTITY/PROJECT/RUN/file_stream
            run, chunk = self.runs[path.split("/")[-2]], json.loads(body)
            for name, part in (chunk.get("files") or {}).items():
                if name in (HISTORY, EVENTS, SUMMARY):
                    run.put(name, part["offset"], part["content"])
            if chunk.get("complete"):
                run.exit_code = chunk["exitcode"]
        return {}

    def graphql(self, query: str, given: dict) -> dict:
        if "upsertBucket" in query:
            run = self.runs.setdefault(given["name"], WandbRun(given["project"]))
            run.group = given.get("groupName") or run.group
            run.config.update(json.loads(given.get("config") or "{}"))
            return {"upsertBucket": {"bucket": run.bucket(given["name"]), "inserted": False}}
        if "createRunFiles" in query:
            files = [{"name": name, "uploadUrl": f"{self.url}/upload/{name}"} for name in given["files"]]
            return {"createRunFiles": {"runID": given["run"], "uploadHeaders": [], "files": files}}
        if "bucket(" in query:
            run = self.runs.get(given["name"])
            return {"model": {"id": given["project"], "name": given["project"], "entity": ENTITY,
                              "bucket": run and run.bucket(given["name"])}}
        return {}
