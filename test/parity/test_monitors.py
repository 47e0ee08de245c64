"""What people watch a run with has the numbers of metrics.jsonl: TensorBoard, W&B, Prometheus, and the
command for events."""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import datetime
from importlib.machinery import SourceFileLoader
from importlib.util import spec_from_loader
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from jobs import Job
from programs import DIVERGED, FAILURE, checkpoints, losses, metrics, until
from reference import Model, Optimizer
from test_guard import ROLLBACK, SPIKY

JOB = Job(
    model=Model(num_hidden_layers=1),
    optimizer=Optimizer(decay_iters=10000),
    train_iters=10000,
    epoch_steps=4,
    settings={"checkpoint": {"interval": 5, "keep": 0},
              "monitoring": {"validation_interval": 4, "validation_iters": 2},
              "target": {"peak_tflops": 0.001}},
    tables=[("validation", {"name": "web", "paths": ["train.bin"]})],
)

# Saves behind the steps give updates of tensors.
UPDATED = replace(JOB, settings={**JOB.settings, "checkpoint": {**JOB.settings["checkpoint"], "background": True}})

# An evaluation of each export.
EVALUATE = 'echo "{\\"acc\\": $LMC_STEP.5, \\"of\\": {\\"loss\\": 0.25}}" > $LMC_RESULTS/results.json'
EVALUATED = ["--set", "checkpoint.export_interval=5", "--set", f"checkpoint.export_command={json.dumps(EVALUATE)}"]

# Keys of metrics.jsonl whose tags have another name, as docs/running.md says.
TAGS = {"mfu_full": "mfu", "memory_bytes": "memory"}


def tags_of(line: dict) -> dict[str, float]:
    """The scalars that a line of metrics.jsonl stands for."""
    values = {TAGS.get(key, key): value for key, value in line.items()
              if isinstance(value, (int, float)) and key != "step"}
    for group in ("validation", "router"):
        for name, results in line.get(group, {}).items():
            values.update({f"{group}/{name}/{key}": value for key, value in results.items()})
    return values


def updates(out: Path) -> list[dict]:
    path = out / "updates.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def update_tags_of(line: dict) -> dict[str, float]:
    """The scalars that a line of updates.jsonl stands for."""
    return {f"{prefix}/{name}": value for prefix, key in (("updates", "update_ratio"), ("weight_rms", "weight_rms"))
            for name, value in line[key].items() if value is not None}


def kill_after(process: subprocess.Popen, out: Path, steps: int) -> None:
    """Kills a run when metrics.jsonl has so many lines."""
    def has_steps() -> bool:
        assert process.poll() is None
        return (out / "metrics.jsonl").exists() and len(metrics(out)) >= steps
    until(has_steps, f"{steps} steps")
    process.send_signal(signal.SIGKILL)
    process.wait()


def events_of(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]


def shown_by_tensorboard(out: Path) -> dict[str, list]:
    reader = pytest.importorskip("tensorboard.backend.event_processing.plugin_event_accumulator",
                                 reason="the Python package tensorboard is not installed")
    events = reader.EventAccumulator(str(out / "tensorboard"), size_guidance={"tensors": 0},
                                     tensor_size_guidance={"scalars": 0})
    events.Reload()
    from tensorboard.util import tensor_util
    return {tag: [(event.step, event.wall_time, tensor_util.make_ndarray(event.tensor_proto).item())
                  for event in events.Tensors(tag)]
            for tag in events.Tags()["tensors"]}


def compare_with_tensorboard(out: Path) -> int:
    shown, expected = shown_by_tensorboard(out), {}
    for lines, tags in ((metrics(out), tags_of), (updates(out), update_tags_of)):
        for line in lines:
            for tag, value in tags(line).items():
                expected.setdefault(tag, []).append((line["step"], value))
    assert shown.keys() == expected.keys()
    for tag, values in expected.items():
        assert [step for step, _, _ in shown[tag]] == [step for step, _ in values], tag
        # TensorBoard's scalars are in single precision.
        assert [value for _, _, value in shown[tag]] == [float(np.float32(v)) for _, v in values], tag
    return sum(map(len, expected.values()))


TENSORBOARD = ["--set", "monitoring.tensorboard=true"]


def test_tensorboard_shows_each_step_once_after_kills_and_rewinds(programs, compiled, tmp_path):
    out = tmp_path / "run"
    for steps in (8, 17):
        process = programs.start("lmc-run", compiled(UPDATED), f"--out={out}", *TENSORBOARD)
        kill_after(process, out, steps)
    done = metrics(out)[-1]["step"]
    programs.run("lmc-run", f"--out={out}", f"--steps={max(done + 3, 20)}").ok()
    compared = compare_with_tensorboard(out)
    assert len(list((out / "tensorboard").iterdir())) == 3 and len(updates(out)) > 1

    at = sorted(checkpoints(out))[-2]
    programs.run("lmc-run", f"--out={out}", f"--rewind={at}", f"--steps={at + 6}", "--set", "lr_schedule.lr=5e-4",
                 "--change=lr_schedule.lr").ok()
    print(f"{compared} values, and {compare_with_tensorboard(out)} after a rewind")
    assert [line["step"] for line in metrics(out)] == list(range(1, at + 7))
    assert losses(out)[at - 1] != losses(out)[at]


def test_the_bits_of_a_run_do_not_depend_on_what_watches_it(programs, compiled, tmp_path,
                                                               monkeypatch):
    watched = ["--set", "monitoring.tensorboard=true", "--set", "monitoring.prometheus=lmc.prom",
               "--set", "monitoring.on_event=cat", "--set", "monitoring.wandb_project=none"]
    monkeypatch.setenv("LMC_WANDB", "/bin/false")
    programs.run("lmc-run", compiled(JOB), f"--out={tmp_path}/a", "--steps=8", *watched).ok()
    programs.run("lmc-run", compiled(JOB), f"--out={tmp_path}/b", "--steps=8").ok()
    assert losses(tmp_path / "a") == losses(tmp_path / "b")
    for a, b in zip(checkpoints(tmp_path / "a").values(), checkpoints(tmp_path / "b").values(),
                    strict=True):
        for file in ("model", "moment1", "moment2"):
            assert (a / f"{file}.safetensors").read_bytes() == (b / f"{file}.safetensors").read_bytes()


def test_prometheus_gets_the_latest_step_and_the_end(programs, compiled, tmp_path):
    target = tmp_path / "lmc.prom"
    run = programs.run("lmc-run", compiled(JOB), f"--out={tmp_path}/run", "--steps=7", "--set",
                       f"monitoring.prometheus={target}", "--set", "monitoring.log_interval=3").ok()
    values = {name: float(value) for name, value in
              re.findall(r'^(lmc_\w+)\{run="[^"]*"\} (\S+)$', target.read_text(), re.MULTILINE)}
    line = metrics(tmp_path / "run")[-1]
    assert line["step"] == 7 and "warning: monitoring" not in run.stderr
    for name, key in {"lmc_step": "step", "lmc_loss": "loss", "lmc_lr": "lr", "lmc_mfu": "mfu_full",
                      "lmc_grad_norm": "grad_norm", "lmc_tokens_total": "tokens",
                      "lmc_tokens_per_second": "tokens_per_second", "lmc_memory_bytes": "memory_bytes",
                      "lmc_step_seconds": "step_seconds", "lmc_data_seconds": "data_seconds"}.items():
        assert values[name] == line[key], name
    assert (values["lmc_running"], values["lmc_exit_code"]) == (0, 0)
    assert values["lmc_last_checkpoint_step"] == 7
    saved = [event["time"] for event in events_of(tmp_path / "run") if event["event"] == "checkpoint"]
    written = datetime.fromisoformat(saved[-1].replace("Z", "+00:00")).timestamp()
    assert abs(values["lmc_last_checkpoint_timestamp_seconds"] - written) < 60
    assert set((tmp_path).glob("lmc.prom*")) == {target}


# Keeps what it gets in files that are whole as soon as they are there.
KEEP = ('d=$LMC_OUT/heard; mkdir -p $d; cat > $d/.$LMC_EVENT.$LMC_STEP; '
        'mv $d/.$LMC_EVENT.$LMC_STEP $d/$LMC_EVENT.$LMC_STEP')


def heard(out: Path) -> dict[str, dict]:
    return {path.name: json.loads(path.read_text()) for path in (out / "heard").glob("[a-z]*")}


def test_the_command_hears_of_checkpoints_and_of_the_end(programs, compiled, tmp_path):
    programs.run("lmc-run", compiled(JOB), f"--out={tmp_path}", "--steps=7", "--set",
                 "checkpoint.interval=0", "--set", f"monitoring.on_event={KEEP}").ok()
    until(lambda: {"exit.7", "checkpoint.7", "start.0"} <= heard(tmp_path).keys(), "exit.7")
    told = heard(tmp_path)
    by_name = {(event["event"], event.get("step")): event for event in events_of(tmp_path)}
    assert told["start.0"] == by_name["start", 0]
    assert told["exit.7"] == by_name["exit", None]
    assert told["checkpoint.7"] == by_name["checkpoint", 7]


def test_the_command_hears_of_a_divergence(programs, compiled, tmp_path):
    diverging = ["--set", "lr_schedule.lr=5", "--set", "lr_schedule.min_lr=5", "--set", "guard.patience=16"]
    run = programs.run("lmc-run", compiled(JOB), f"--out={tmp_path}", "--steps=100", *diverging, "--set",
                       f"monitoring.on_event={KEEP}")
    assert run.code == DIVERGED
    until(lambda: any(name.startswith("exit.") for name in heard(tmp_path)), "exit")
    until(lambda: any(name.startswith("diverged.") for name in heard(tmp_path)), "diverged")
    told = heard(tmp_path)
    diverged = [event for event in events_of(tmp_path) if event["event"] == "diverged"]
    assert told[f"diverged.{diverged[0]['step']}"] == diverged[0]
    assert [event["code"] for name, event in told.items() if name.startswith("exit.")] == [DIVERGED]


def test_the_command_hears_of_a_save_that_failed(programs, compiled, tmp_path):
    out = tmp_path / "run"
    out.mkdir()
    (out / "checkpoints").symlink_to("/proc/none/checkpoints")  # where nobody can make a folder
    run = programs.run("lmc-run", compiled(JOB), f"--out={out}", "--steps=3", "--set",
                       f"monitoring.on_event={KEEP}")
    assert run.code == FAILURE, run.stderr
    until(lambda: {"save_failed.3", "exit.3"} <= heard(out).keys(), "save_failed.3")
    assert "checkpoints" in heard(out)["save_failed.3"]["error"]


def test_a_command_that_hangs_or_is_missing_changes_nothing(programs, compiled, tmp_path):
    out = tmp_path / "run"
    hangs = "echo $$ >> $LMC_OUT/pids; exec sleep 100000"
    run = programs.run("lmc-run", compiled(JOB), f"--out={out}", "--steps=12", "--set",
                       f"monitoring.on_event={hangs}").ok()
    assert "monitoring.on_event" not in run.stderr
    checkpoint_events = [event for event in events_of(out) if event["event"] == "checkpoint"]
    assert len(checkpoint_events) == 3
    # One for each kind, not for each event; and lmc-run has not ended them.
    names = [event["event"] for event in events_of(out)]
    kinds = len(set(names[names.index("start"):]))  # the command hears of nothing before
    pids = lambda: [int(pid) for pid in (out / "pids").read_text().split()]
    until(lambda: (out / "pids").exists() and len(pids()) >= kinds, "a command for each kind of event")
    for pid in pids():
        os.kill(pid, signal.SIGKILL)
    assert len(pids()) == kinds

    missing = programs.run("lmc-run", compiled(JOB), f"--out={tmp_path}/b", "--steps=12", "--set",
                           "monitoring.on_event=no-such-program-anywhere").ok()
    assert "monitoring.on_event" not in missing.stderr
    assert losses(out) == losses(tmp_path / "b")


# W&B -------------------------------------------------------------------------------------------------

WANDB = ["--set", "monitoring.wandb_project=llamas", "--set", "monitoring.wandb_group=tests"]


@pytest.fixture
def offline(monkeypatch) -> None:
    if importlib.util.find_spec("wandb") is None:
        pytest.skip("the Python package wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    # The program's `#!/usr/bin/env python3` is the Python of these tests.
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")


def wandb_records(path: Path):
    """The records of a .wandb file, read by wandb's own DataStore where this release of wandb has it,
    and otherwise by the description of the format."""
    from wandb.proto import wandb_internal_pb2
    try:
        from wandb.sdk.internal.datastore import DataStore
    except ImportError:
        DataStore = None
    if DataStore:
        store = DataStore()
        store.open_for_scan(str(path))
        datas = iter(store.scan_data, None)
    else:
        datas = leveldb_records(path.read_bytes())
    for data in datas:
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        yield record


def leveldb_records(data: bytes):
    """github.com/google/leveldb, doc/log_format.md, behind a head of seven bytes."""
    assert data[:4] == b":W&B"
    position, parts = 7, []
    while position < len(data):
        left = 32768 - position % 32768
        if left < 7:
            position += left
            continue
        length, kind = int.from_bytes(data[position + 4:position + 6], "little"), data[position + 6]
        parts.append(data[position + 7:position + 7 + length])
        assert kind in (1, 2, 3, 4) and len(parts[-1]) == length, "a damaged record"
        position += 7 + length
        if kind in (1, 4):
            yield b"".join(parts)
            parts = []


def sent_to_wandb(out: Path) -> dict[str, list[tuple[int, dict]]]:
    """{id of the W&B run: (step, values) in the order of sending}."""
    sent: dict[str, list] = {}
    for folder in sorted((out / "wandb").glob("offline-run-*")):
        for path in folder.glob("*.wandb"):
            name = None
            for record in wandb_records(path):
                if record.WhichOneof("record_type") == "run":
                    name = record.run.run_id
                    assert (record.run.project, record.run.run_group) == ("llamas", "tests")
                if record.WhichOneof("record_type") == "history":
                    values = {item.key or item.nested_key[0]: json.loads(item.value_json)
                              for item in record.history.item}
                    assert values["_step"] == record.history.step.num
                    sent.setdefault(name, []).append((record.history.step.num, values))
    return sent


def is_late(key: str) -> bool:
    """Whether a row has this value of an earlier step."""
    return key.split("/")[0] in ("updates", "weight_rms", "evaluation")


def late_rows(rows: list[tuple[int, dict]], kind: str) -> list[dict]:
    """What the rows have of updates.jsonl ("updates") or of the evaluations ("evaluation"), in their
    order; asserts that each stands in a row of its step or of a later one, and none is there twice."""
    prefixes = {"updates": ("updates/", "weight_rms/"), "evaluation": ("evaluation/",)}[kind]
    found = []
    for step, values in rows:
        late = {key: value for key, value in values.items() if key.startswith(prefixes)}
        if late:
            assert late[f"{kind}/step"] <= step
            found.append(late)
    steps = [late[f"{kind}/step"] for late in found]
    assert len(set(steps)) == len(steps), steps
    return found


def updates_rows(lines: list[dict]) -> list[dict]:
    return [{**update_tags_of(line), "updates/step": line["step"]} for line in lines]


def evaluations_rows(out: Path) -> list[dict]:
    """Of the evaluations in events.jsonl that no rewind has taken back; of those of one step, the last."""
    found = {}
    for event in events_of(out):
        if event["event"] == "evaluation":
            found[event["step"]] = event["values"]
        elif event["event"] == "rewind":
            found = {step: values for step, values in found.items() if step <= event["step"]}
    return [{"evaluation/step": step, **{f"evaluation/{name}": value for name, value in values.items()}}
            for step, values in found.items()]


def assert_late_sent(rows: list[tuple[int, dict]], kind: str, expected: list[dict]) -> None:
    """One that came when the last row had another one already waits until the run goes on."""
    found = late_rows(rows, kind)
    assert found == expected[:len(found)]
    missing = len(expected) - len(found)
    assert missing == 0 or missing == 1 and f"{kind}/step" in rows[-1][1]


def until_late(out: Path) -> None:
    """Returns when a run has two lines of updates.jsonl and two evaluations."""
    def count(name: str, text: bytes) -> int:
        return (out / name).read_bytes().count(text) if (out / name).exists() else 0
    until(lambda: count("updates.jsonl", b"\n") > 1 and count("events.jsonl", b'"event":"evaluation"') > 1, "two evaluations")


def assert_sent(rows: list[tuple[int, dict]], lines: list[dict]) -> None:
    assert [step for step, _ in rows] == [line["step"] for line in lines]
    for (_, values), line in zip(rows, lines):
        own = {key: value for key, value in values.items() if not key.startswith("_") and not is_late(key)}
        assert own == tags_of(line)


def wait_for_sender(out: Path) -> None:
    """Returns when no lmc-wandb of the run goes on."""
    until(lambda: not senders(out), "the end of lmc-wandb")


def senders(out: Path) -> list[int]:
    """The processes that send the run in `out` to W&B."""
    return [int(process) for process in os.listdir("/proc") if process.isdigit()
            and str(out).encode() in command_of(process) and b"lmc-wandb" in command_of(process)]


def command_of(process: str) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def test_wandb_gets_each_step_once_through_kills_of_the_run_and_the_sender(offline, programs, compiled,
                                                                           tmp_path):
    out = tmp_path / "run"
    process = programs.start("lmc-run", compiled(UPDATED), f"--out={out}", *EVALUATED, *WANDB)
    until_late(out)
    kill_after(process, out, 12)
    wait_for_sender(out)
    first = json.loads((out / "wandb.json").read_text())

    # Now the sender is killed, in the middle of a run, after it has sent steps that the first one had not.
    process = programs.start("lmc-run", f"--out={out}", *WANDB)
    until(lambda: json.loads((out / "wandb.json").read_text())["sent"] > max(20, first["sent"]), "more steps sent")
    killed = senders(out)
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    assert killed
    kill_after(process, out, len(metrics(out)) + 3)

    done = metrics(out)[-1]["step"]
    programs.run("lmc-run", f"--out={out}", f"--steps={done + 4}").ok()
    wait_for_sender(out)
    sent = sent_to_wandb(out)
    assert list(sent) == [first["id"]], "another W&B run"
    rows = sent[first["id"]]
    assert [step for step, _ in rows] == list(range(1, done + 5))
    # Steps that were trained again have equal losses; only their times are those of the first time.
    assert [values["loss"] for _, values in rows] == losses(out)
    assert_sent(rows[-4:], metrics(out)[-4:])
    assert_late_sent_through_kills(rows, out)


def assert_late_sent_through_kills(rows: list[tuple[int, dict]], out: Path) -> None:
    """Each line of updates.jsonl and each evaluation is in the rows. A start after a kill may write its
    saves after other steps than the one before, whose lines are moved then."""
    kept = updates_rows(updates(out))
    moved = [row for folder in (out / "undone").glob("*") for row in updates_rows(updates(folder))]
    sent = late_rows(rows, "updates")
    assert all(row in kept or row in moved for row in sent)
    later = max((row["updates/step"] for row in sent if row not in kept), default=0)
    missing = [row for row in kept if row not in sent and row["updates/step"] > later]
    assert not missing or missing == kept[-1:] and "updates/step" in rows[-1][1]
    assert_late_sent(rows, "evaluation", evaluations_rows(out))
    print(f"{len(sent)} lines of updates.jsonl, of which {len(kept)} are still there")
    assert len(sent) > 1


def test_a_rewind_begins_another_run_in_wandb(offline, programs, compiled, tmp_path):
    out = tmp_path / "run"
    programs.run("lmc-run", compiled(UPDATED), f"--out={out}", "--steps=12", *EVALUATED, *WANDB).ok()
    wait_for_sender(out)
    before, updates_before, evaluations_before = metrics(out), updates(out), evaluations_rows(out)
    programs.run("lmc-run", f"--out={out}", "--rewind=5", "--steps=9", "--set", "lr_schedule.lr=5e-4",
                 "--change=lr_schedule.lr").ok()
    wait_for_sender(out)
    sent = sent_to_wandb(out)
    first, second = sent
    assert second == f"{first}-2"
    assert_sent(sent[first], before)
    assert_sent(sent[second], metrics(out))
    for rows, moved, evaluated in ((sent[first], updates_before, evaluations_before),
                                   (sent[second], updates(out), evaluations_rows(out))):
        assert_late_sent(rows, "updates", updates_rows(moved))
        assert_late_sent(rows, "evaluation", evaluated)
    # By hand there is nothing more to send.
    command = [programs.path("lmc-wandb"), str(out), "--project=llamas", "--group=tests"]
    subprocess.run(command, check=True, capture_output=True)
    assert sent_to_wandb(out) == sent


def test_a_rollback_of_the_guard_begins_another_run_in_wandb(offline, programs, compiled, tmp_path):
    out = tmp_path / "run"
    programs.run("lmc-run", compiled(SPIKY), f"--out={out}", *ROLLBACK, "--set", "guard.rollbacks=100",
                 *WANDB).ok()
    wait_for_sender(out)
    rewinds = [event["step"] for event in events_of(out) if event["event"] == "rewind"]
    sent = sent_to_wandb(out)
    # How many of the steps that were taken back W&B had depends on the speed of the two programs.
    assert rewinds and 1 <= len(sent) <= 1 + len(rewinds)
    assert_sent(list(sent.values())[-1], metrics(out))


class FakeWandb:
    """Takes the place of the package. `runs` has the steps that each W&B run got, `rows` their values."""

    def __init__(self):
        self.runs: dict[str, list[int]] = {}
        self.rows: dict[str, dict[int, dict]] = {}
        self.step_metrics: dict[str, str] = {}

    Settings = dict

    def init(self, id: str, **_):
        steps, rows = self.runs.setdefault(id, []), self.rows.setdefault(id, {})
        starting_step = steps[-1] + 1 if steps else 0

        def log(row: dict, step: int) -> None:
            # A row is open until a later one comes, or another process.
            assert step >= max(steps[-1] if steps else 0, starting_step), "W&B would drop it"
            if step not in rows:
                steps.append(step)
            rows.setdefault(step, {}).update(row)

        def define_metric(name: str, step_metric: str = "", hidden: bool = False) -> None:
            self.step_metrics[name] = step_metric

        return SimpleNamespace(
            offline=False, url="", starting_step=starting_step, log=log, define_metric=define_metric,
            summary={key: value for row in rows.values() for key, value in row.items()},
            finish=lambda exit_code: None)


def sender_module(programs):
    path = programs.path("lmc-wandb")
    module = importlib.util.module_from_spec(spec_from_loader("sender", SourceFileLoader("sender", str(path))))
    module.__spec__.loader.exec_module(module)
    return module


def test_late_values_are_each_sent_once_in_rows_of_their_step_or_later(programs, tmp_path):
    module, wandb = sender_module(programs), FakeWandb()
    (tmp_path / "run.json").write_text('{"run": "abc"}')

    def append(name: str, **record) -> None:
        with (tmp_path / f"{name}.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")

    def trains(first: int, last: int, minute: int = 0) -> None:
        for step in range(first, last + 1):
            append("metrics", step=step, loss=1.0, time=f"2026-01-01T00:{minute:02}:{step:02}.000Z")

    def moves(step: int) -> None:
        append("updates", step=step, lr=0.1, update_ratio={"a.b": step / 64, "c": None}, weight_rms={"a.b": 2.0, "c": 0.0})

    def evaluates(step: int) -> None:
        append("events", time="2026-01-01T00:01:00.000Z", event="evaluation", step=step, values={"x/acc": step / 32})

    def begins():
        sender = module.Sender(wandb, SimpleNamespace(out=str(tmp_path), project="p", entity=None, group=None, name=None))
        sender.load()
        sender.open()
        sender.follow()
        return sender

    def has(run: str) -> dict[int, tuple]:
        """{step: (step of the updates, of the evaluation)} of the rows that have any."""
        for row in wandb.rows[run].values():
            at = row.get("updates/step")
            expected = {} if at is None else {"updates/step": at, "updates/a.b": at / 64, "weight_rms/a.b": 2.0, "weight_rms/c": 0.0}
            at = row.get("evaluation/step")
            expected.update({} if at is None else {"evaluation/step": at, "evaluation/x/acc": at / 32})
            assert {key: value for key, value in row.items() if is_late(key)} == expected
        return {step: (row.get("updates/step"), row.get("evaluation/step")) for step, row in wandb.rows[run].items()
                if any(map(is_late, row))}

    append("events", time="2026-01-01T00:00:00.000Z", event="start", step=0, host="a", pid=7)
    trains(1, 10)
    moves(3), moves(6)
    evaluates(4), evaluates(2)  # the latter had failed before
    sender = begins()
    (first,) = wandb.runs
    assert has(first) == {3: (3, None), 4: (None, 4), 5: (None, 2), 6: (6, None)}
    assert wandb.step_metrics == {"updates/step": "", "evaluation/step": "", "updates/*": "updates/step",
                                  "weight_rms/*": "updates/step", "evaluation/*": "evaluation/step"}
    # Of a step whose row W&B does not have: they wait.
    moves(11), evaluates(12)
    sender.follow()
    assert len(has(first)) == 4
    # The sender is killed before W&B has its last row.
    wandb.runs[first].pop(), wandb.rows[first].pop(10)
    moves(12)
    trains(11, 12)
    sender = begins()
    more = {11: (11, None), 12: (12, 12)}
    assert has(first) == {3: (3, None), 4: (None, 4), 5: (None, 2), 6: (6, None), **more}
    # Behind the last row, they become a part of it; what it has already waits for another one.
    trains(13, 13)
    sender.follow()
    moves(13), evaluates(11), evaluates(10)
    sender.follow()
    sender.close()
    more[13] = (13, 11)
    assert has(first) == {3: (3, None), 4: (None, 4), 5: (None, 2), 6: (6, None), **more}
    time_of_row = datetime.fromisoformat("2026-01-01T00:00:13+00:00").timestamp()
    assert wandb.rows[first][13]["_timestamp"] == time_of_row and wandb.rows[first][13]["loss"] == 1.0
    begins().close()
    assert len(has(first)) == 7
    sender = begins()
    trains(14, 14)
    sender.follow()
    more[14] = (None, 10)
    assert has(first) == {3: (3, None), 4: (None, 4), 5: (None, 2), 6: (6, None), **more}

    # Another run gets what a rewind leaves.
    append("events", time="2026-01-01T00:02:00.000Z", event="rewind", step=5)
    append("events", time="2026-01-01T00:02:01.000Z", event="start", step=5, host="a", pid=7)
    for name, kept in (("metrics", 5), ("updates", 1)):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:kept]))
    trains(6, 14, minute=3)
    sender.follow()
    assert wandb.runs[f"{first}-2"] == list(range(1, 15))
    assert has(f"{first}-2") == {3: (3, None), 4: (None, 4), 5: (None, 2)} and len(wandb.runs[first]) == 14


def test_no_step_that_is_taken_back_is_sent_to_the_wandb_run_of_the_steps_that_stay(programs, tmp_path):
    module = sender_module(programs)
    lines = lambda first, last, time: "".join(
        json.dumps({"time": f"2026-01-01T00:00:{time:02}.000Z", "step": step, "loss": 1.0}) + "\n"
        for step in range(first, last + 1))

    def happens(time: int, name: str, **fields) -> None:
        with (tmp_path / "events.jsonl").open("a") as file:
            event = {"time": f"2026-01-01T00:00:{time:02}.000Z", "event": name, **fields}
            file.write(json.dumps(event) + "\n")

    (tmp_path / "run.json").write_text('{"run": "abc"}')
    happens(1, "start", step=0, host="a", pid=7)
    wandb = FakeWandb()
    options = SimpleNamespace(out=str(tmp_path), project="p", entity=None, group=None, name=None)
    sender = module.Sender(wandb, options)
    sender.load()
    sender.open()
    (tmp_path / "metrics.jsonl").write_text(lines(1, 10, time=2))
    sender.follow()
    (first,) = wandb.runs
    assert wandb.runs == {first: list(range(1, 11))}

    happens(3, "rollback", step=5, spike=9)
    happens(3, "rewind", step=5)
    sender.follow()
    assert list(wandb.runs) == [first]
    happens(4, "start", step=5, host="a", pid=7)
    sender.follow()  # metrics.jsonl is not cut yet
    second = f"{first}-2"
    assert wandb.runs == {first: list(range(1, 11)), second: list(range(1, 6))}
    (tmp_path / "metrics.jsonl").write_text(lines(1, 5, time=2) + lines(6, 12, time=5))
    sender.follow()
    assert wandb.runs[second] == list(range(1, 13))

    # A rollback to a step that W&B does not have yet, and all of it between two looks.
    happens(6, "rewind", step=14)
    happens(6, "start", step=14, host="a", pid=7)
    (tmp_path / "metrics.jsonl").write_text(lines(1, 14, time=5) + lines(15, 16, time=7))
    sender.follow()
    assert list(wandb.runs) == [first, second] and wandb.runs[second] == list(range(1, 17))

    # Another lmc-run has its own lmc-wandb.
    happens(8, "start", step=16, host="a", pid=8)
    (tmp_path / "metrics.jsonl").write_text(lines(1, 14, time=5) + lines(15, 20, time=9))
    sender.follow()
    sender.follow()
    assert wandb.runs[second] == list(range(1, 17))


def test_a_python_without_wandb_is_one_warning(programs, compiled, tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python3"
    # -S: without site-packages.
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv("PATH", f"{python.parent}:{os.environ['PATH']}")
    out = tmp_path / "run"
    process = programs.start("lmc-run", compiled(JOB), f"--out={out}", *WANDB)
    warned = lambda: [event for event in events_of(out) if "wandb" in event.get("text", "")]
    until(lambda: (out / "events.jsonl").exists() and warned(), "a warning")
    kill_after(process, out, len(metrics(out)) + 5)
    assert len(warned()) == 1 and "ended with code 3" in warned()[0]["text"]
    assert "pip install wandb" in (out / "wandb.log").read_text()
