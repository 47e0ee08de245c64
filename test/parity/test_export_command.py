"""checkpoint.export_command: a program that evaluates each export of a run."""

import json
from pathlib import Path

import pytest

from jobs import Job
from programs import USER_ERROR, until
from reference import Model, Optimizer

JOB = Job(model=Model(num_hidden_layers=1), optimizer=Optimizer(decay_iters=2000), train_iters=2000,
          settings={"checkpoint": {"export_interval": 2}})

# Counts the bytes of the weights, as lm-evaluation-harness would lay its results out.
COUNT = """mkdir -p $LMC_RESULTS/model; printf '{"results": {"size": {"bytes,none": %d, "alias": "size"}}, "config": {"seed": 3}}' \
$(stat -c %s $LMC_EXPORT/model.safetensors) > $LMC_RESULTS/model/results_1.json"""


def events(out: Path, name: str) -> list[dict]:
    lines = map(json.loads, (out / "events.jsonl").read_text().splitlines())
    return [line for line in lines if line["event"] == name]


def complete(out: Path) -> set[int]:
    return {int(path.parent.name) for path in out.glob("evaluations/*/complete")}


def run(programs, plan, out, command, *more):
    return programs.run("lmc-run", plan, f"--out={out}", "--set", f"checkpoint.export_command={json.dumps(command)}",
                        *more)


def test_each_export_is_evaluated_once(programs, compiled, tmp_path):
    """Those whose turn does not come before the run ends are evaluated by its next start."""
    plan, out = compiled(JOB), tmp_path / "run"
    count = f"{COUNT}; echo $LMC_STEP >> {tmp_path}/calls"
    # The commands cannot end before the run does.
    first = run(programs, plan, out, f"while ! [ -e {tmp_path}/go ]; do sleep 0.05; done; {count}", "--steps=6").ok()
    assert "not yet complete for the exports of 3 step(s): 2, 4, 6" in first.stdout
    (tmp_path / "go").touch()
    until(lambda: complete(out) == {2}, "the command that outlives the run is complete")
    starts = 0
    while not {2, 4, 6} <= complete(out):
        run(programs, plan, out, count, f"--steps={7 + 2 * starts}").ok()
        starts += 1
        assert starts < 100
    calls = sorted(int(line) for line in (tmp_path / "calls").read_text().split())
    assert len(set(calls)) == len(calls) and {2, 4, 6} <= set(calls)
    for step in (2, 4, 6):
        size = (out / "exports" / str(step) / "model.safetensors").stat().st_size
        written = json.loads((out / "evaluations" / str(step) / "model" / "results_1.json").read_text())
        assert written["results"]["size"]["bytes,none"] == size


def test_results_are_events(programs, compiled, tmp_path):
    plan, out = compiled(JOB), tmp_path / "run"
    run(programs, plan, out, COUNT, "--steps=2").ok()
    until(lambda: complete(out) == {2}, "the first command is complete")
    # A long run sees the end of its commands.
    run(programs, plan, out, COUNT, "--set", "checkpoint.export_interval=500", "--set",
        "monitoring.tensorboard=true").ok()
    seen = {event["step"]: event["values"] for event in events(out, "evaluation")}
    assert 500 in seen
    reader = pytest.importorskip("tensorboard.backend.event_processing.plugin_event_accumulator",
                                 reason="the Python package tensorboard is not installed")
    from tensorboard.util import tensor_util
    shown = reader.EventAccumulator(str(out / "tensorboard"))
    shown.Reload()
    assert [(e.step, tensor_util.make_ndarray(e.tensor_proto).item()) for e in shown.Tensors("evaluation/size/bytes,none")] == [
        (step, values["size/bytes,none"]) for step, values in seen.items()]
    assert all(list(values) == ["size/bytes,none"] and values["size/bytes,none"] > 1000 for values in seen.values())


def test_a_command_that_fails_is_tried_by_the_next_start(programs, compiled, tmp_path):
    plan, out = compiled(JOB), tmp_path / "run"
    done = run(programs, plan, out, "echo no model >&2; exit 3", "--steps=1800", "--set",
               "checkpoint.export_interval=1000").ok()
    assert "the command for the export of step 1000 ended with exit code 3 (evaluations/1000/output.log)" in done.stderr
    assert events(out, "evaluation_failed")[0]["code"] == 3
    assert "no model" in (out / "evaluations" / "1000" / "output.log").read_text()
    run(programs, plan, out, COUNT, "--steps=1801").ok()
    until(lambda: 1000 in complete(out), "the next start evaluates it")


def test_a_rewind_takes_evaluations_back(programs, compiled, tmp_path):
    plan, out = compiled(JOB), tmp_path / "run"
    run(programs, plan, out, COUNT, "--set", "checkpoint.interval=1", "--steps=4").ok()
    until(lambda: 2 in complete(out), "the export of step 2 is evaluated")
    programs.run("lmc-run", plan, f"--out={out}", "--rewind=1", "--steps=1").ok()
    assert complete(out) == set() and (out / "undone/1/evaluations/2/complete").exists()


def test_a_command_needs_exports(programs, compiled, tmp_path):
    done = run(programs, compiled(JOB), tmp_path / "run", "true", "--set", "checkpoint.export_interval=0")
    assert done.code == USER_ERROR and "set the interval" in done.stderr
