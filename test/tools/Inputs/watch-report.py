"""Follows runs with `lmc report --watch`: watch-report.py FOLDER, where make-runs.py has written.

A run gets its first step, then more, then its end; each page has what was there, and the program ends with the run. A second
program is stopped by a signal, and leaves a page that does not load itself anew.
"""
import json
import pathlib
import re
import signal
import subprocess
import sys
import time

folder = pathlib.Path(sys.argv[1])
run = folder / "new"


def page(name: str) -> dict:
    return json.loads(re.search(r'id="data">(.*?)</script>', (folder / name).read_text(), re.S).group(1))


def wait(process, name: str, holds) -> dict:
    while True:
        if (folder / name).exists() and holds(data := page(name)):
            return data
        assert process.poll() is None, process.returncode
        time.sleep(0.05)


def start(name: str):
    return subprocess.Popen(["lmc", "report", "new", "--watch", "--every=1", "-o", name], cwd=folder)


def steps(data: dict) -> int:
    return data["runs"][0]["facts"]["steps"]


first = start("watched.html")
assert wait(first, "watched.html", lambda data: steps(data) == 0)["reload_seconds"] == 1
for step in (1, 2):
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": step, "loss": 4.0, "tokens": step, "step_seconds": 1}) + "\n")
    wait(first, "watched.html", lambda data: steps(data) == step)
second = start("stopped.html")
wait(second, "stopped.html", lambda data: steps(data) == 2 and data["reload_seconds"] == 1)
second.send_signal(signal.SIGINT)
assert second.wait() == 0
assert page("stopped.html")["reload_seconds"] == 0
with (run / "events.jsonl").open("a") as file:
    file.write('{"time": "2026-11-22T10:00:00.000Z", "event": "exit", "code": 0}\n')
assert first.wait() == 0
assert page("watched.html")["reload_seconds"] == 0 and page("watched.html")["runs"][0]["facts"]["ended"]
