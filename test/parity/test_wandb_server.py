"""A server gets what metrics.jsonl has: while the run goes on, and later by `wandb sync`."""

import importlib.metadata
import json
import os
import subprocess
import sys
from datetime import datetime

import pytest

from programs import losses, metrics
from test_monitors import (EVALUATED, UPDATED, WANDB, assert_late_sent, assert_late_sent_through_kills, assert_sent,
                           evaluations_rows, kill_after, offline, until_late, updates, updates_rows, wait_for_sender)
from wandb_server import WandbRun, WandbServer

FEW = ["--set", "checkpoint.interval=5", *EVALUATED, *WANDB]


@pytest.fixture
def server():
    with WandbServer() as server:
        yield server


def the_run(server: WandbServer, out) -> WandbRun:
    """Asserts that the server has one run, and its settings."""
    (name, run), = server.runs.items()
    recorded = json.loads((out / "run.json").read_text())
    assert (name, run.project, run.group) == (recorded["run"], "llamas", "tests")
    config = {key: entry["value"] for key, entry in run.config.items() if key != "_wandb"}
    assert config == {key: setting["value"] for key, setting in recorded["settings"].items()}
    return run


def test_wandb_sync_brings_all_of_a_run_that_was_kept_offline_to_a_server(offline, programs, compiled, tmp_path,
                                                                          server):
    out = tmp_path / "run"
    programs.run("lmc-run", compiled(UPDATED), f"--out={out}", "--steps=9", *FEW).ok()
    wait_for_sender(out)
    programs.run("lmc-run", f"--out={out}", "--steps=16").ok()
    wait_for_sender(out)
    folders = sorted((out / "wandb").glob("offline-run-*"))
    assert len(folders) == 2
    # Earlier releases let a second folder of a run replace the first one otherwise.
    release = tuple(map(int, importlib.metadata.version("wandb").split(".")[:2]))
    options = ["--append"] if release < (0, 29) else []
    done = subprocess.run([sys.executable, "-m", "wandb", "sync", *options, *folders], cwd=tmp_path,
                          env={**os.environ, **server.environment()}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr

    run, lines = the_run(server, out), metrics(out)
    rows = run.history()
    numbered = [(row["_step"], row) for row in rows]
    assert_sent(numbered, lines)
    assert_late_sent(numbered, "updates", updates_rows(updates(out)))
    assert_late_sent(numbered, "evaluation", evaluations_rows(out))
    assert len(rows) == 16 and run.exit_code == 0
    for row, line in zip(rows, lines):
        assert row["_timestamp"] == datetime.fromisoformat(line["time"].replace("Z", "+00:00")).timestamp()


def test_a_server_gets_each_step_once_through_a_kill(offline, programs, compiled, tmp_path, server, monkeypatch):
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    out = tmp_path / "run"
    process = programs.start("lmc-run", compiled(UPDATED), f"--out={out}", *FEW)
    until_late(out)
    kill_after(process, out, 13)
    wait_for_sender(out)
    had = len(the_run(server, out).history())
    programs.run("lmc-run", f"--out={out}", f"--steps={had + 4}").ok()
    wait_for_sender(out)
    rows = the_run(server, out).history()
    assert had >= 13 and [row["_step"] for row in rows] == list(range(1, had + 5))
    assert [row["loss"] for row in rows] == losses(out)
    assert_sent([(row["_step"], row) for row in rows[-4:]], metrics(out)[-4:])
    assert_late_sent_through_kills([(row["_step"], row) for row in rows], out)
