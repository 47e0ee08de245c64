"""docs/cards: each shipped config has its card, and `./dev cards` writes what lmc explain says beside what was measured.

The figures of the committed cards are not compared: an estimate may change anywhere, and `./dev cards` makes them anew."""

import hashlib
import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from programs import Finished, tree_digest, until

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = sorted(path for path in (ROOT / "models/configs").glob("*.toml") if not path.name.startswith("test-"))
NVIDIA_SMI = r"""#!/bin/bash
case "$*" in
  *-lms*) while true; do echo "1755, 650.5, 4000"; sleep 0.02; done ;;
  *) echo "%s, 580.65.06, %s, 81559 MiB, 700.00 W, 1980 MHz, 2619 MHz" ;;
esac
"""
FIGURES = {
    "peak_bytes": 123 * 2**20, "step_seconds": 0.125, "tokens_per_second_per_device": 4321.0, "mfu_causal": 0.321, "mfu_full": 0.345,
    "compile_seconds": 1.5, "first_start_seconds": 2.5, "start_seconds": 0.25, "traffic_bytes_per_token": None,
}


def block(text: str) -> str:
    """The config in a card."""
    return re.search(r"^```toml\n(.*)^```\n\Z", text, re.M | re.S)[1]


def rows(text: str) -> dict[str, list[str]]:
    """The cells of each row of a page's tables, by the first."""
    table = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line.startswith("| ")]
    return {first: rest for first, *rest in table}


def number(cell: str) -> float:
    """Of "1,234", "12.3%", "1.50 GiB" or "0.125 s", in units without a prefix."""
    value, unit = re.match(r"([\d,.e+-]+) ?([A-Za-z%]*)", cell).groups()
    return float(value.replace(",", "")) * {"%": 0.01, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}.get(unit, 1)


class Desk:
    """Configs, cards and measured figures in a folder of their own."""

    def __init__(self, folder: Path, programs):
        self.folder, self.programs = folder, programs
        for name in ("configs", "bin"):
            (folder / name).mkdir()
        # A machine without nvidia-smi, whatever this one has.
        for name in ("git", "bash", "sleep"):
            (folder / "bin" / name).symlink_to(shutil.which(name))

    def config(self, name: str = "small", old: str = "", new: str = "") -> Path:
        path = self.folder / "configs" / f"{name}.toml"
        text = (ROOT / "models/configs/test-tiny.toml").read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1) if old else text)
        return path

    def gpu(self, name: str, capability: str) -> None:
        (self.folder / "bin/nvidia-smi").write_text(NVIDIA_SMI % (name, capability))
        (self.folder / "bin/nvidia-smi").chmod(0o755)

    def keep(self, name: str, **changes) -> None:
        """Writes measured figures of a config's present text."""
        text = (self.folder / "configs" / f"{name}.toml").read_bytes()
        kept = {
            "config": name, "config_sha256": hashlib.sha256(text).hexdigest(), "target": "cpu", "date": "2026-02-03",
            "release": "0.1.0 (commit 0123456789ab, 2026-02-01)", "load_before": 0.1, "tokens": "random token ids",
            "machine": {"cpu": "A processor", "features": ["avx2"], "threads": 4, "memory_gib": 8.0, "clock": "2600 MHz",
                        "max_clock": "cannot be read", "governor": "performance", "power_cap": "cannot be read"},
            "warm_up_steps": 2, "steps_per_window": 5, "windows": [4000.0, 4321.0, 4100.0], "peak_flops": 2e11,
            "memory_is": "the largest resident set of a process", "allocated_bytes": 2**20, "figures": FIGURES, **changes,
        }
        (self.folder / "results").mkdir(exist_ok=True)
        (self.folder / f"results/{name}.json").write_text(json.dumps(kept))

    def run(self, *args: str, **environment: str) -> Finished:
        command = [sys.executable, ROOT / "bench/cards/cards.py", *args,
                   *(f"--{option}={self.folder / folder}" for option, folder in
                     (("configs", "configs"), ("out", "cards"), ("results", "results")))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env={
            **os.environ, "LMC_BUILD": str(self.programs.build), "PATH": str(self.folder / "bin"), **environment})
        return Finished(" ".join(map(str, command)), done.returncode, done.stdout, done.stderr, 0, 0)

    def card(self, name: str = "small") -> str:
        return (self.folder / f"cards/{name}.md").read_text()

    def index(self) -> dict[str, list[str]]:
        return rows((self.folder / "cards/README.md").read_text())


@pytest.fixture
def desk(tmp_path, programs) -> Desk:
    return Desk(tmp_path, programs)


def fails_in_one_line(finished: Finished, *parts: str) -> None:
    print(finished.stderr.strip())
    assert finished.code == 1 and finished.stderr.count("\n") == 1 and finished.stderr.startswith("cards: error: ")
    for part in parts:
        assert part in finished.stderr


def test_every_config_has_a_card_that_the_index_lists():
    names = sorted(path.stem for path in CONFIGS)
    assert len(names) > 10
    assert sorted(path.stem for path in (ROOT / "docs/cards").glob("*.md")) == sorted(["README", *names])
    index = (ROOT / "docs/cards/README.md").read_text()
    assert re.findall(r"^\| \[(.+?)\]\(\1\.md\) \|", index, re.M) == names


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_card_holds_its_config(path):
    card = (ROOT / f"docs/cards/{path.stem}.md").read_text()
    assert block(card) == path.read_text(), f"the config has changed: run ./dev cards {path.stem}"
    assert f"models/configs/{path.stem}.toml" in card and f"./dev cards {path.stem}" in card


def test_planned_figures_are_those_of_lmc_explain(desk, programs):
    path = desk.config()
    desk.run().ok()
    report = json.loads(programs.run("lmc", "explain", path, "--json").ok().stdout)
    cells = rows(desk.card())
    cost = report["cost"]
    planned = {
        "memory": report["memory"]["peak_bytes"], "an optimizer step": cost["step_seconds"],
        "tokens/s": cost["tokens_per_second_per_device"], "MFU, causal": cost["mfu_causal"],
        "MFU, all attention scores": cost["mfu_full"], "traffic of a token": report["fusion"]["bytes_per_token"],
    }
    for name, value in planned.items():
        print(f"{name}: {cells[name]}, {value:.6g}")
        assert number(cells[name][0]) == pytest.approx(value, rel=6e-3)
        assert cells[name][1] == "not measured"
    assert cells["a compile"] == ["no prediction", "not measured"]
    assert f"`{cost['device']}`" in desk.card() and "**Measured:** nothing yet." in desk.card()
    version = programs.run("lmc", "--version").ok().stdout
    assert re.search(r"commit \w+", version)[0] in desk.card()
    assert desk.index()["[small](small.md)"][3] == cells["memory"][0]


def test_a_job_of_many_gpus_is_planned_for_them(desk, programs):
    path = desk.config("many", 'compute_dtype = "f32"', 'compute_dtype = "bf16"')
    path.write_text(path.read_text() + '[distributed]\nnodes = 2\ndevices_per_node = 4\nstrategy = "zero3"\n')
    path.write_text(path.read_text().replace("batch_size = 8", "batch_size = 16", 1))
    desk.run("many").ok()
    report = json.loads(programs.run("lmc", "explain", path, "--target=cuda:sm_90a", "--json").ok().stdout)
    cells = rows(desk.card("many"))
    assert number(cells["sent in a step"][0]) == pytest.approx(report["comm"]["sent_bytes_per_step"], rel=6e-3)
    assert number(cells["tokens/s"][0]) == pytest.approx(report["cost"]["tokens_per_second_per_device"], rel=6e-3)
    assert "`h100-sxm`" in desk.card("many") and desk.index()["[many](many.md)"][1] == "8"
    assert "srun --nodes=2 --ntasks-per-node=4" in desk.card("many")
    fails_in_one_line(desk.run("--measure", "many"), "2 nodes")


def test_measured_figures_stand_beside_planned_ones(desk):
    desk.config()
    desk.keep("small")
    desk.run().ok()
    card = desk.card()
    cells = rows(card)
    shown = {"memory": "123.00 MiB", "an optimizer step": "0.125 s", "tokens/s": "4,321", "MFU, causal": "32.1%",
             "MFU, all attention scores": "34.5%", "traffic of a token": "not measured", "a compile": "1.5 s",
             "the first start on a machine": "2.5 s", "a later start": "0.25 s"}
    assert {name: cells[name][1] for name in shown} == shown
    assert all(re.match(r"\d|no prediction", cells[name][0]) for name in shown)
    for part in ("commit 0123456789ab", "2026-02-03", "A processor (avx2), 4 threads", "governor performance"):
        assert part in card
    assert "older config" not in card and "Other work" not in card
    assert desk.index()["[small](small.md)"][6:] == ["4,321", "32.1%", "A processor, 2026-02-03"]


def test_figures_of_an_older_config_are_marked(desk):
    desk.config()
    desk.keep("small", load_before=1.75)
    desk.config("small", "lr = 1e-3", "lr = 2e-3")
    desk.run().ok()
    assert "**The measured figures are of an older config:**" in desk.card()
    assert "the load average was 1.75" in desk.card()
    assert desk.index()["[small](small.md)"][-1].endswith("an older config")


def test_one_card_is_written_anew_and_the_others_stay(desk):
    for name in ("one", "two"):
        desk.config(name)
    desk.run().ok()
    before = tree_digest(desk.folder / "cards")
    desk.config("one", "num_hidden_layers = 2", "num_hidden_layers = 3")
    desk.config("two", "num_hidden_layers = 2", "num_hidden_layers = 3")
    desk.run("one").ok()
    after = tree_digest(desk.folder / "cards")
    assert before["two.md"] == after["two.md"] and before["one.md"] != after["one.md"]
    index = desk.index()
    assert index["[one](one.md)"][0] != index["[two](two.md)"][0]


def test_a_config_that_does_not_compile_keeps_its_card(desk):
    for name in ("bad", "good"):
        desk.config(name)
    desk.run().ok()
    before = tree_digest(desk.folder / "cards")
    desk.config("bad", "hidden_size = 64", "hidden_size = 63")
    desk.config("good", "hidden_size = 64", "hidden_size = 128")
    fails_in_one_line(desk.run(), "bad.toml")
    after = tree_digest(desk.folder / "cards")
    assert before["bad.md"] == after["bad.md"] and before["good.md"] != after["good.md"]


def test_a_wrong_name_names_those_that_there_are(desk):
    desk.config()
    fails_in_one_line(desk.run("smal"), "'smal'", "small")
    fails_in_one_line(desk.run("--measure"), "names")
    assert not (desk.folder / "cards").exists()


@pytest.mark.parametrize("gpu, why", [
    (None, "needs a GPU of cuda:sm_90a, and nvidia-smi is not on this machine"),
    (("NVIDIA A100-SXM4-80GB", "8.0"), "this machine has NVIDIA A100-SXM4-80GB (sm_80)"),
])
def test_without_its_gpu_nothing_is_measured_and_nothing_changes(desk, gpu, why):
    desk.config("cpu")
    desk.config("gpu", 'compute_dtype = "f32"', 'compute_dtype = "bf16"')
    desk.keep("cpu")
    desk.run().ok()
    if gpu:
        desk.gpu(*gpu)
    before = tree_digest(desk.folder)
    fails_in_one_line(desk.run("--measure", "cpu", "gpu"), "gpu needs", why)
    assert tree_digest(desk.folder) == before


def check_measured(desk: Desk, name: str) -> dict:
    kept = json.loads((desk.folder / f"results/{name}.json").read_text())
    print({**kept["figures"], "windows": kept["windows"]})
    figures = kept["figures"]
    assert figures.pop("traffic_bytes_per_token") is None
    assert all(value > 0 for value in figures.values())
    assert len(kept["windows"]) == 3 and max(kept["windows"]) == figures["tokens_per_second_per_device"]
    # A step has 8 sequences of 32 tokens.
    assert figures["step_seconds"] * figures["tokens_per_second_per_device"] == pytest.approx(256)
    assert figures["peak_bytes"] > kept["allocated_bytes"] > 2**20
    assert figures["mfu_causal"] <= figures["mfu_full"] < 1
    text = json.dumps(kept) + desk.card(name)
    assert os.uname().nodename not in text and str(desk.folder) not in text and str(desk.programs.build) not in text
    cells = rows(desk.card(name))
    assert number(cells["tokens/s"][1]) == pytest.approx(figures["tokens_per_second_per_device"], rel=6e-3)
    return kept


def test_measures_on_the_cpu(desk):
    desk.config()
    desk.run("--measure", "small", "--window=0.05").ok()
    machine = check_measured(desk, "small")["machine"]
    assert machine["threads"] == len(os.sched_getaffinity(0)) and machine["governor"]


def test_measures_ranks(desk):
    path = desk.config("pair")
    path.write_text(path.read_text() + '[distributed]\ndevices_per_node = 2\nstrategy = "zero3"\n')
    desk.run("--measure", "pair", "--window=0.05").ok()
    kept = json.loads((desk.folder / "results/pair.json").read_text())
    # A step has 8 sequences of 32 tokens, on two ranks.
    assert kept["figures"]["step_seconds"] * kept["figures"]["tokens_per_second_per_device"] == pytest.approx(128)
    assert kept["figures"]["peak_bytes"] is None and rows(desk.card("pair"))["memory"][1] == "not measured"


def test_a_run_ends_with_its_ranks():
    """Ranks that have lost their launcher would save a checkpoint before they end."""
    script = "(trap '' TERM; exec sleep 1000) & echo $!; wait"
    launcher = subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE, text=True)
    rank = int(launcher.stdout.readline())
    runpy.run_path(str(ROOT / "bench/cpu/bench.py"))["kill"](launcher)
    launcher.wait()
    try:
        until(lambda: not is_running(rank), "the rank is dead")
    finally:
        if is_running(rank):
            os.kill(rank, signal.SIGKILL)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_measures_on_a_gpu(desk):
    """The stand-ins for the driver and cuBLASLt run the plan."""
    library = desk.programs.build / "lib"
    if not (library / "libcuda-host.so").exists():
        pytest.skip("the host driver is not built: it needs the headers of a CUDA toolkit")
    desk.config("gpu", 'compute_dtype = "f32"', 'compute_dtype = "bf16"')
    desk.gpu("NVIDIA H100 80GB HBM3", "9.0")
    # The stand-ins compile kernels with the machine's compiler.
    desk.run("--measure", "gpu", "--window=0.01", LMC_CUDA_DRIVER=str(library / "libcuda-host.so"),
             LMC_CUBLASLT=str(library / "libcublaslt-host.so"), PATH=f"{desk.folder / 'bin'}:{os.environ['PATH']}").ok()
    kept = check_measured(desk, "gpu")
    assert kept["figures"]["peak_bytes"] == 4000 * 2**20, "memory is not what nvidia-smi says"
    for part in ("NVIDIA H100 80GB HBM3", "power cap 700.00 W", "SM clock at most 1980 MHz, 1755 MHz under load", "driver 580.65.06"):
        assert part in desk.card("gpu")
