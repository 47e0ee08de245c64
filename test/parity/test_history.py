"""No step that a run ever did disappears from its folder, whatever kills the run or takes it back."""

import json
import random
import re
import signal
import time

from jobs import Job
from programs import checkpoints, metrics
from reference import Model, Optimizer

JOB = Job(
    model=Model(num_hidden_layers=1),
    optimizer=Optimizer(decay_iters=10000),
    train_iters=10000,
    epoch_steps=4,
    settings={"checkpoint": {"interval": 5, "keep": 0}, "monitoring": {"log_interval": 1}},
)


def printed_steps(text: str) -> list[int]:
    return [int(step) for step in re.findall(r"^step (\d+)/", text, re.MULTILINE)]


def test_every_step_that_was_ever_run_is_in_the_files(programs, compiled, tmp_path):
    """Three kills and two rewinds; what the console printed is the independent record."""
    out, draw = tmp_path / "run", random.Random(3)
    printed: list[int] = []

    def killed(*options: str) -> None:
        log = tmp_path / "stdout"
        with log.open("w") as stdout:
            process = programs.start("lmc-run", compiled(JOB), f"--out={out}", *options, stdout=stdout)
            wanted = draw.randint(12, 30)
            while len(printed_steps(log.read_text())) < wanted:
                assert process.poll() is None
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
            process.wait()
        printed.extend(printed_steps(log.read_text()))

    killed()
    killed()
    saved = list(checkpoints(out))
    killed(f"--rewind={saved[len(saved) // 2]}")
    rewound = programs.run("lmc-run", f"--out={out}", f"--rewind={saved[0]}",
                           f"--steps={saved[0] + 7}").ok()
    printed.extend(printed_steps(rewound.stdout))

    recorded: list[int] = []
    for path in [out, *sorted((out / "undone").iterdir())]:
        if (path / "metrics.jsonl").exists():
            lines = metrics(path)
            assert all(re.fullmatch(r"20\d\d-\d\d-\d\dT.*Z", line["time"]) for line in lines)
            recorded.extend(line["step"] for line in lines)
    missing = list(printed)
    for step in recorded:
        if step in missing:
            missing.remove(step)
    print(f"{len(printed)} steps printed, {len(recorded)} recorded, missing {missing}")
    assert missing == []
    # A kill may fall between the record of a step and its line on the console.
    assert len(recorded) <= len(printed) + 3

    # The run itself has each step once.
    assert [line["step"] for line in metrics(out)] == list(range(1, saved[0] + 8))
    # Every checkpoint that was ever whole is still there.
    kept = list(checkpoints(out))
    for path in (out / "undone").iterdir():
        kept.extend(checkpoints(path))
    assert set(saved) <= set(kept)

    events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    names = [event["event"] for event in events]
    assert names.count("start") == 4 and names.count("rewind") == 2
    assert names[-1] == "exit" and events[-1]["code"] == 0
