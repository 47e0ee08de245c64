"""Writes folders of runs as lmc-run does, for tests of `lmc report`: make-runs.py FOLDER.

    FOLDER/a        600 steps, a spike with a warning, two starts, validation of two sets, a checkpoint, generated texts,
                    evaluations of two exports and one that is not complete, updates of tensors every four steps, routers of two layers, ended
    FOLDER/HOSTILE  a name, texts, a tensor and a set of validation data that hold HTML and script; goes on
    FOLDER/broken   lines that are damaged, and a half-written one at the end
    FOLDER/none     no metrics
    FOLDER/new      a run before its first step
    FOLDER/curve.csv
"""
import json
import math
import pathlib
import sys

HOSTILE = "<script>document.title='taken'<"
TEXT = "</script><script>document.documentElement.dataset.taken=1</script><img src=x onerror=\"document.documentElement.dataset.taken=1\">"


def metrics(step: int, loss: float, **more) -> str:
    return json.dumps({
        "step": step, "loss": loss, "lr": 1e-3 * min(1, step / 50), "grad_norm": 1 + 1 / step, "update_ratio": 1e-3, "tokens": 4096 * step,
        "tokens_per_second": 8192.0, "mfu_causal": 0.4, "mfu_full": 0.45, "step_seconds": 0.5, "data_seconds": 0.01,
        "validation_seconds": 0.0, "save_seconds": 0.0, "time": time(step / 2), "memory_bytes": 2 << 30, **more}) + "\n"


def time(seconds: float) -> str:
    return f"2026-11-22T10:{int(seconds // 60):02}:{seconds % 60:06.3f}Z"


def event(at: float, name: str, **fields) -> str:
    return json.dumps({"time": time(at), "event": name, **fields}) + "\n"


def identity(lr: str) -> str:
    return json.dumps({"planHash": "ab12" * 16, "target": "cpu", "host": "node7", "runtimeVersion": "0.1.0",
                       "settings": {"lr_schedule.lr": {"value": lr, "values": []}, "training.seed": {"value": "1", "values": []}}})


def updates(step: int, **ratios) -> str:
    """The root mean square of the weights grows by a millionth of the first one per step."""
    return json.dumps({"step": step, "lr": 1e-3, "update_ratio": ratios, "weight_rms": {name: 0.02 + 2e-8 * step for name in ratios}}) + "\n"


def main(folder: pathlib.Path) -> None:
    for name in ("a", HOSTILE.replace("/", ""), "broken", "none", "new"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    a = folder / "a"
    with (a / "metrics.jsonl").open("w") as file:
        for step in range(1, 601):
            loss = 2 + 4 * math.exp(-step / 60) + (3.5 if step == 300 else 0)
            more = {"validation_seconds": 2.0, "validation_loss": loss + 0.1, "validation": {"code": {"loss": loss - 0.2}}} if step % 100 == 0 else {}
            if step == 401:
                more = {"save_seconds": 5.0}
            if step == 450:
                more = {"step_seconds": 4.5, "data_seconds": 4.0}
            router = {"0": {"max_load": 0.9 if step == 300 else 0.3, "min_load": 0.0, "entropy": 1.25, "balance_loss": 2.5},
                      "10": {"max_load": 0.25, "min_load": 0.2 + step / 1e4, "entropy": 1.5, "balance_loss": 2.0, "late": 0.125}}
            file.write(metrics(step, loss, router=router, **more))
    (a / "events.jsonl").write_text(
        event(0, "start", step=0, plan="job.plan") + event(150, "warning", text="step 300: loss 5.53 is 12 deviations above its mean") +
        event(160, "warning", text="step 320: taken back later") +
        event(200, "checkpoint", step=400, path="checkpoints/400", bytes=1024, seconds=5.0) + event(200, "exit", code=75) +
        event(210, "start", step=310) + event(210, "change", step=310, key="lr_schedule.lr", **{"from": "1e-3", "to": "5e-4"}) + event(300, "exit", code=0, seconds=300))
    (a / "run.json").write_text(identity("1e-3"))
    (a / "generated.jsonl").write_text("".join(
        json.dumps({"step": step, "prompt": prompt, "text": f"  text {k} of step {step}\nand more", "tokens": 5, "end": "length"}) + "\n"
        for step in range(100, 900, 100) for k, prompt in enumerate(("Once upon", "def f(x):"))))
    for step, done in ((200, True), (400, True), (600, False)):
        results = a / "evaluations" / str(step)
        (results / "model").mkdir(parents=True, exist_ok=True)
        (results / "model" / "results_1.json").write_text(json.dumps(
            {"results": {"hellaswag": {"alias": "hellaswag", "acc,none": 0.25 + step / 1000}}, "config": {"seed": 3}}))
        (results / "broken.json").write_text("{")
        if done:
            (results / "complete").write_text("")
    (a / "updates.jsonl").write_text("".join(
        updates(step, embed=2e-3 / step, up_proj=0.75 if step == 300 else 1e-3, down_proj=5e-3, bias=None if step == 600 else 0)
        for step in range(4, 604, 4)))
    hostile = folder / HOSTILE.replace("/", "")
    (hostile / "metrics.jsonl").write_text("".join(
        metrics(step, 3 - step / 100, router={"3": {"max_load": TEXT}, TEXT: {"max_load": 1.0}}, **({"validation": {TEXT: {"loss": 2.5}}} if step == 50 else {})) for step in range(1, 101)))
    (hostile / "events.jsonl").write_text(event(0, "start", step=0) + event(20, "warning", text=TEXT) + event(30, TEXT, step=7))
    (hostile / "generated.jsonl").write_text(json.dumps({"step": 3, "prompt": TEXT, "text": TEXT, "tokens": 1, "end": "length"}) + "\n{\n")
    (hostile / "updates.jsonl").write_text(updates(5, **{TEXT: 1e-3}))
    (hostile / "run.json").write_text(identity(TEXT))
    (folder / "broken" / "metrics.jsonl").write_text(
        metrics(1, 5.0) + '{"step": 2, "loss": 4.\n' + "\x00\x00\n" + metrics(3, 4.0) + '{"step": 4, "lo')
    (folder / "broken" / "updates.jsonl").write_text(updates(1, a=0.5) + updates(1, a=0.75) + updates(2, a=0.25) + updates(3, a=1)[:30])
    (folder / "broken" / "run.json").write_text("{")
    (folder / "new" / "metrics.jsonl").write_text("")
    (folder / "curve.csv").write_text("tokens,loss\n409600,4.5\n1228800,3\n2457600,2.5\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
