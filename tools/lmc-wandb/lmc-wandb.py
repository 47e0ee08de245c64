#!/usr/bin/env python3
"""Sends the metrics of a run of lmc-run to Weights & Biases.

    lmc-wandb OUT --project=P [--entity=E] [--group=G] [--name=N]

lmc-run starts it beside the run if monitoring.wandb_project is set. Started by hand, it sends what
W&B does not have yet, and ends. The key comes from WANDB_API_KEY, the file WANDB_API_KEY_PATH or
~/.netrc. WANDB_MODE=offline keeps everything in OUT/wandb until `wandb sync`.

Each step of metrics.jsonl is sent once, whatever is killed: when the W&B run is opened, the server or,
offline, the files in OUT/wandb say which steps W&B has.

Lines of updates.jsonl and evaluations of exports come some steps after their step, but the rows of
W&B's history only go forward. So each of them becomes a part of the next row, with its own step as
`updates/step` or `evaluation/step`, over which W&B draws it (define_metric).

OUT/wandb.json has the id of the W&B run, so that the next start goes on with it. If a rewind or a
changed setting trains steps anew that W&B has, another W&B run begins, which gets all of metrics.jsonl.

Exit codes: 0 all was sent, 1 it was not (another try may succeed), 2 a wrong command line, 3 wandb
or its key is missing.
"""
import argparse
import collections
import fcntl
import glob
import json
import os
import pathlib
import select
import signal
import sys
import time
from datetime import datetime

POLL_SECONDS = 1.0
RETRY_SECONDS = 60.0  # after W&B could not be reached
CANNOT_WORK = 3
RELEASE = "@LMC_RELEASE@"

# Names in W&B, which are those in TensorBoard, of keys of metrics.jsonl that have another one.
NAMES = {
    "mfu_full": "mfu",
    "memory_bytes": "memory",
    "validation_loss": "validation/loss",
    "validation_perplexity": "validation/perplexity",
    "validation_bits_per_byte": "validation/bits_per_byte",
}
NOT_FINITE = {"loss", "grad_norm", "update_ratio"}  # null in metrics.jsonl: NaN or infinite
UPDATES, EVALUATION = "updates/step", "evaluation/step"  # steps of records that are part of later rows


def report(text: str) -> None:
    print(f"{datetime.now().astimezone().isoformat(timespec='seconds')} {text}", flush=True)


def row_of(record: dict) -> dict:
    """The values of a line of metrics.jsonl with their names in W&B."""
    row = {}
    for key, value in record.items():
        if key == "time":
            row["_timestamp"] = datetime.fromisoformat(value.replace("Z", "+00:00")).timestamp()
        elif key in ("validation", "sources", "router"):
            for name, values in value.items():
                row.update({f"{key}/{name}/{what}": number for what, number in values.items()})
        elif value is None:
            if key in NOT_FINITE:
                row[key] = float("nan")
        elif key != "step":
            row[NAMES.get(key, key)] = value
    return row


def row_of_updates(record: dict) -> dict:
    """A ratio is null if the weights were zero, and a size is null if it is NaN or infinite."""
    row = {UPDATES: record["step"]}
    row.update({f"updates/{name}": ratio for name, ratio in record.get("update_ratio", {}).items()
                if ratio is not None})
    row.update({f"weight_rms/{name}": float("nan") if size is None else size
                for name, size in record.get("weight_rms", {}).items()})
    return row


def row_of_evaluation(step: int, values: dict) -> dict:
    return {EVALUATION: step, **{f"evaluation/{name}": value for name, value in values.items()
                                 if value is not None}}


def json_of(path: pathlib.Path) -> dict:
    """The contents of a JSON file; {} if there is none, or if it is damaged."""
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}


class Lines:
    """Reads each whole line of a growing file once. If the file was cut, which moves the last line that
    was read, reads it again from its beginning."""

    def __init__(self, path: pathlib.Path, forget=lambda: None):
        """Calls `forget` before the file is read from its beginning."""
        self.path, self.forget = path, forget
        self.restart()

    def restart(self) -> None:
        self.forget()
        self.end = 0  # of the lines that were read
        self.last = b""

    def read(self) -> list[dict]:
        try:
            with self.path.open("rb") as file:
                file.seek(self.end - len(self.last))
                text = file.read()
                if not text.startswith(self.last):
                    self.restart()
                    file.seek(0)
                    text = file.read()
        except FileNotFoundError:
            return []
        lines = text[len(self.last):].splitlines(keepends=True)
        if lines and not lines[-1].endswith(b"\n"):
            lines.pop()  # it is being written
        if lines:
            self.end += sum(map(len, lines))
            self.last = lines[-1]
        records = []
        for line in lines:
            try:
                records.append(json.loads(line))
            except ValueError:
                pass  # what a full disk or a killed run has left
        return [record for record in records if isinstance(record, dict)]


def recorded_rows(path: str):
    """The step of each row in a .wandb file, and its values of UPDATES and EVALUATION. After seven bytes,
    the file has the log format of LevelDB (github.com/google/leveldb, doc/log_format.md), with a message
    Record of wandb in each record."""
    from wandb.proto import wandb_internal_pb2

    with open(path, "rb") as file:
        data = file.read()
    at, message = 7, b""
    while at + 7 <= len(data):
        room = 32768 - at % 32768
        if room < 7:
            at += room
            continue
        size, kind = int.from_bytes(data[at + 4:at + 6], "little"), data[at + 6]
        if kind == 0 or at + 7 + size > len(data):
            break
        message = (b"" if kind in (1, 2) else message) + data[at + 7:at + 7 + size]
        at += 7 + size
        if kind in (1, 4):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(message)
            if record.WhichOneof("record_type") == "history":
                values = {item.key or item.nested_key[0]: item.value_json
                          for item in record.history.item}
                yield record.history.step.num, {
                    key: json.loads(values[key]) for key in (UPDATES, EVALUATION) if key in values}


def wait_for_writers(folder: pathlib.Path) -> None:
    """Waits for wandb's own process, which goes on writing after the process that started it was killed."""
    if not folder.is_dir():
        return
    prefix = f"{folder.resolve()}/"

    def writes(process: str) -> bool:
        try:
            return any(os.readlink(link).startswith(prefix) for link in glob.glob(f"{process}/fd/*"))
        except OSError:
            return False

    deadline = time.monotonic() + RETRY_SECONDS
    while any(map(writes, glob.glob("/proc/[0-9]*"))) and time.monotonic() < deadline:
        time.sleep(0.1)


class Sender:
    def __init__(self, wandb, options: argparse.Namespace):
        self.wandb, self.options = wandb, options
        self.out = pathlib.Path(options.out).resolve()
        self.state_path = self.out / "wandb.json"
        self.metrics = Lines(self.out / "metrics.jsonl")
        self.updates_waiting = collections.deque()  # lines of updates.jsonl that W&B does not have
        self.updates = Lines(self.out / "updates.jsonl", self.updates_waiting.clear)
        self.events = Lines(self.out / "events.jsonl")
        self.evaluations = {}  # the values of all that are valid, by their steps, as they came
        self.run = None
        self.sent = 0  # the last step that W&B has
        self.had = {}  # the last values of UPDATES and EVALUATION that W&B has
        self.row = {}  # that of the step `sent`, to which W&B still lets values be added
        self.exit_code = 1  # of the run: killed, unless an event says otherwise
        self.events_seen = 0  # lines of events.jsonl
        self.process = None  # host and number of the lmc-run that has started last
        self.goes_back = False  # true between a rewind and its start
        self.rewind = (sys.maxsize, "")  # step and time of the last one
        self.again = False  # true if another lmc-run has started since this program began
        self.fork = False  # true if another W&B run must begin
        self.reread = False  # true if metrics.jsonl must be read from its first line
        self.events_before = len(Lines(self.out / "events.jsonl").read())  # when this program began

    def load(self) -> None:
        """Must be called only while no other process sends."""
        wait_for_writers(self.out / "wandb")
        self.state = json_of(self.state_path)

    def save(self, **changes) -> None:
        state = {**self.state, **changes}
        if state == self.state:
            return
        self.state = state
        partial = self.state_path.with_suffix(".json.partial")
        partial.write_text(json.dumps(state, indent=2) + "\n")
        partial.replace(self.state_path)

    def open(self) -> None:
        """Opens the W&B run, and sets `sent` to what it has."""
        recorded = json_of(self.out / "run.json")
        name = recorded.get("run", "")
        if not self.state.get("id") or self.state.get("run") != name:
            identifier = name or f"lmc-{os.urandom(4).hex()}"
            self.save(id=identifier, run=name, generation=1, sent=0, had={}, events=0)
        settings = {
            key: setting.get("value") if isinstance(setting, dict) else setting
            for key, setting in recorded.get("settings", {}).items()
        }
        part = self.state["generation"]
        self.run = self.wandb.init(
            project=self.options.project,
            entity=self.options.entity,
            group=self.options.group,
            name=(self.options.name or self.out.name) + (f" ({part})" if part > 1 else ""),
            id=self.state["id"],
            resume="allow",
            dir=str(self.out),
            config=settings,
            settings=self.wandb.Settings(
                console="off", disable_code=True, disable_git=True, silent=True),
        )
        if self.run.offline:
            self.sent, self.had = self.recorded_offline()
        else:
            self.sent = self.run.starting_step - 1
            self.had = {key: self.run.summary[key] for key in (UPDATES, EVALUATION)
                        if self.run.summary.get(key) is not None}
        self.row = {}
        for names, step_metric in (("updates/*", UPDATES), ("weight_rms/*", UPDATES),
                                   ("evaluation/*", EVALUATION)):
            self.run.define_metric(step_metric, hidden=True)
            self.run.define_metric(names, step_metric=step_metric)
        report(f"W&B run {self.state['id']} has steps up to {max(self.sent, 0)}"
            + (" (offline)" if self.run.offline else f": {self.run.url}"))
        self.metrics.restart()
        self.updates.restart()

    def recorded_offline(self) -> tuple[int, dict]:
        identifier = self.state["id"]
        files = [path for path in
                 glob.glob(f"{glob.escape(str(self.out))}/wandb/offline-run-*-{identifier}/*.wandb")
                 if pathlib.Path(path).stat().st_size > 0]
        own = str(pathlib.Path(self.run.settings.sync_file).resolve())
        earlier = [path for path in files if str(pathlib.Path(path).resolve()) != own]
        if not earlier:  # they may have been sent, and removed
            return self.state["sent"], self.state.get("had", {})
        last, had = 0, {}
        for step, values in sorted((row for path in earlier for row in recorded_rows(path)),
                                   key=lambda row: row[0]):
            last = step
            had.update(values)
        return last, had

    def follow_events(self) -> bool:
        """Returns False while metrics.jsonl has lines that will not stay: while lmc-run goes back to an
        earlier step, and if lmc-run was started again after this program."""
        for event in self.events.read():
            self.events_seen += 1
            name, step = event.get("event"), event.get("step", 0)
            if name == "start":
                process = (event.get("host"), event.get("pid"))
                if self.events_seen > self.events_before and process != self.process:
                    self.again = True
                self.process, self.goes_back, self.exit_code = process, False, 1
            elif name == "exit":
                self.exit_code = event.get("code", 1)
            elif name == "rewind":  # its start follows
                self.goes_back = self.reread = True
                self.rewind = step, event.get("time", "")
            elif name == "evaluation" and isinstance(step, int):
                self.evaluations[step] = event.get("values", {})
            anew = name == "rewind" or (name == "change" and event.get("identity"))
            if anew:
                self.evaluations = {at: values for at, values in self.evaluations.items() if at <= step}
            if anew and self.events_seen > self.state["events"] and step < self.sent:
                self.fork = True
        if self.again or self.goes_back:
            return False
        if self.fork:
            report("steps that W&B has are trained anew: another W&B run begins")
            self.close()
            part = self.state["generation"] + 1
            name = self.state["run"] or self.state["id"].rsplit("-", 1)[0]
            self.save(id=f"{name}-{part}", generation=part, sent=0, had={}, events=self.events_seen)
            self.fork, self.reread = False, True
            self.open()
        else:
            self.save(events=max(self.events_seen, self.state["events"]))
        return True

    def is_taken_back(self, record: dict) -> bool:
        """Returns True for a line that a rewind will remove, which lmc-run does a while after its event."""
        step, time_of_rewind = self.rewind
        return record["step"] > step and record.get("time", "") < time_of_rewind

    def follow(self) -> None:
        # Reads the events after the lines: if no event is a rewind, the lines are valid.
        self.reread = True
        while self.reread:
            records = self.metrics.read()
            lines = self.updates.read()
            self.updates_waiting.extend(line for line in lines if isinstance(line.get("step"), int))
            self.reread = False
            going = self.follow_events()
            if self.reread or not going:
                self.metrics.restart()
                self.updates.restart()
            if not going:  # the lmc-wandb of another start sends its lines
                return
        for record in records:
            step = record.get("step")
            if isinstance(step, int) and step > self.sent and not self.is_taken_back(record):
                self.row = {}
                self.log(step, {**row_of(record), **self.late_values(step)})
        self.save(sent=self.sent, had=self.had)

    def log(self, step: int, values: dict) -> None:
        self.run.log(values, step=step)
        self.sent = step
        self.row.update(values)
        self.had = {**self.had, **{key: values[key] for key in (UPDATES, EVALUATION) if key in values}}

    def evaluations_waiting(self) -> list[int]:
        """The steps of the evaluations that W&B does not have, in the order in which they completed: after a failure,
        one may complete after that of a later step."""
        steps, last = list(self.evaluations), self.had.get(EVALUATION, 0)
        if last in self.evaluations:
            return steps[steps.index(last) + 1:]
        return [step for step in steps if step > last]

    def late_values(self, step: int) -> dict:
        """The oldest line of updates.jsonl and the oldest evaluation that W&B does not have, if they are not
        of a later step than the row: a rewind then takes back both or neither."""
        values, waiting = {}, self.updates_waiting
        while waiting and waiting[0]["step"] <= self.had.get(UPDATES, 0):
            waiting.popleft()
        if waiting and waiting[0]["step"] <= step and UPDATES not in self.row:
            values.update(row_of_updates(waiting.popleft()))
        evaluations = self.evaluations_waiting()
        if evaluations and evaluations[0] <= step and EVALUATION not in self.row:
            values.update(row_of_evaluation(evaluations[0], self.evaluations[evaluations[0]]))
        return values

    def finish_last_row(self) -> None:
        """Adds the values for which there is no later row to the last row."""
        values = self.late_values(self.sent) if self.row else {}
        if values:
            time_of_row = {key: self.row[key] for key in ("_timestamp",) if key in self.row}
            self.log(self.sent, {**values, **time_of_row})
            self.save(had=self.had)

    def close(self) -> None:
        self.finish_last_row()
        self.run.finish(exit_code=self.exit_code)
        self.run = None


def ended(seconds: float) -> bool:
    """Waits for `seconds`, or until lmc-run ends, which closes the standard input."""
    readable, _, _ = select.select([sys.stdin.fileno()], [], [], seconds)
    return bool(readable) and not os.read(sys.stdin.fileno(), 4096)


def main() -> int:
    parser = argparse.ArgumentParser(prog="lmc-wandb", description=__doc__.split("\n")[0])
    parser.add_argument("--version", action="version", version=f"lmc-wandb {RELEASE}")
    parser.add_argument("out", metavar="OUT", help="folder of the run")
    parser.add_argument("--project", required=True)
    parser.add_argument("--entity")
    parser.add_argument("--group")
    parser.add_argument("--name", help="default: the name of the folder")
    parser.add_argument("--follow", action="store_true",
                        help="go on until the standard input ends, as lmc-run starts it")
    options = parser.parse_args()
    if not os.path.isdir(options.out):
        parser.error(f"{options.out}: no folder of a run")
    if options.follow:
        # A scheduler sends these signals to the whole job. This program must end only after lmc-run.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU,
                       signal.SIGALRM):
            signal.signal(number, signal.SIG_IGN)
    try:
        import wandb
    except ImportError as error:
        report(f"error: {error}; `pip install wandb` for {sys.executable}, or put another python3 "
            "before it in PATH")
        return CANNOT_WORK

    # With a file, the key is not in the environment of all programs that the job starts.
    path = os.environ.get("WANDB_API_KEY_PATH")
    if path and not os.environ.get("WANDB_API_KEY"):
        try:
            with open(os.path.expanduser(path), encoding="utf-8") as file:
                os.environ["WANDB_API_KEY"] = file.read().strip()
        except (OSError, UnicodeDecodeError) as error:
            report(f"error: WANDB_API_KEY_PATH={path}: {error}")
            return CANNOT_WORK

    sender = Sender(wandb, options)
    # Only one process may send: waits until an earlier one has ended.
    lock = open(os.path.join(options.out, "wandb.lock"), "w")
    fcntl.flock(lock, fcntl.LOCK_EX)

    sender.load()
    over = not options.follow
    while True:
        try:
            if sender.run is None:
                sender.open()
            sender.follow()
            if over:
                sender.close()
                return 0
            over = ended(POLL_SECONDS)
        except (wandb.errors.UsageError, wandb.errors.AuthenticationError) as error:
            report(f"error: {error}; set WANDB_API_KEY or WANDB_API_KEY_PATH, run `wandb login`, or set WANDB_MODE=offline")
            return CANNOT_WORK
        except (wandb.Error, OSError) as error:
            report(f"error: {error}")
            if over:
                return 1
            sender.run = None
            over = ended(RETRY_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
