#!/usr/bin/env python3
"""Fills a folder with all that a machine with a GPU needs to check and measure lmc there.

The machine needs the NVIDIA driver, CUDA 13 with nvcc, Python 3.9 and glibc 2.36, and nothing of this
repository. The folder's own `run` says what it does there; bench/gpu/PENDING.md lists what has run.
"""

import argparse
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIMIT_MB = 60
# glibc's own libraries, which only fit the machine that they were made for.
GLIBC = re.compile(r"lib(c|m|dl|rt|pthread|resolv|util)\.so|ld-linux|linux-vdso")
PRICED = (48, 64, 72, 80, 96, 112, 128, 60, 256)  # head sizes: in a tile, in a larger one, in none
ONE_GPU = ("--nodes=1", "--devices-per-node=1")
# A llama1b that compute-sanitizer, which slows a kernel down a thousand times, is done with soon. Its
# heads are llama1b's, so that its attention runs on the tensor cores.
SMALL = {"model.hidden_size": 256, "model.intermediate_size": 512, "model.num_attention_heads": 4,
         "model.num_key_value_heads": 2, "model.vocab_size": 512, "training.sequence_length": 256}


class Pack:
    def __init__(self, folder: Path, build: Path, arch: str, spec: str):
        self.folder, self.bin, self.arch, self.spec = folder, build / "bin", arch, spec
        self.scratch = folder / "scratch"
        self.scratch.mkdir(parents=True)

    def call(self, program: str, *args: object) -> str:
        path = self.bin / program
        if not path.exists():
            raise SystemExit(f"pack: error: {path} is not built: run ./dev build")
        command = [str(path), *map(str, args)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"pack: error: {' '.join(command)}: {done.stderr.strip()}")
        return done.stdout

    def compile(self, config: str, name: str, settings: dict, *options: str) -> Path:
        """Returns the plan of a job for the GPU."""
        plan = self.scratch / f"{name}.plan"
        self.call("lmc", "compile", ROOT / f"models/configs/{config}.toml", f"--target=cuda:{self.arch}",
                  f"--spec={self.spec}", "--quiet", "-o", plan, *ONE_GPU, *options,
                  *(f"--set={key}={value}" for key, value in settings.items()))
        return plan

    def explain(self, plan: Path) -> dict:
        return json.loads(self.call("lmc", "explain", plan, "--json", f"--spec={self.spec}"))

    def extract(self, plan: Path, kernel: str, to: Path) -> None:
        to.parent.mkdir(exist_ok=True)
        self.call("lmc", "explain", plan, f"--spec={self.spec}", f"--extract-kernel={kernel}", "-o", to)

    def kernels(self, folder: str, settings: dict) -> None:
        """Extracts the kernels of llama1b with each optimizer, each kernel once."""
        for optimizer in ("adamw", "adamw8bit"):
            plan = self.compile("llama1b", f"{folder}-{optimizer}", {
                "optimizer.type": optimizer, "memory.recompute": "none", **settings})
            for kernel in self.explain(plan)["kernels"]:
                to = self.folder / folder / f"{kernel['name']}.cu"
                if not to.exists():
                    self.extract(plan, kernel["name"], to)

    def prices(self, columns: int) -> None:
        """Extracts attention and its gradient (both kernels are in one program) for one head size."""
        plan = self.compile("llama1b", f"price-{columns}", {
            "model.head_dim": columns, "model.num_hidden_layers": 1, "training.micro_batch_size": 8,
            "memory.recompute": "none"})
        for kernel in ("attention", "attention_grad_keys"):
            self.extract(plan, kernel, self.folder / "price" / f"{columns:03}-{kernel}.cu")

    def gemms(self) -> None:
        """Writes each product of llama1b at MBS 16 once, and the head's for other chunks of the loss."""
        plan = self.compile("llama1b", "gemms", {
            "training.micro_batch_size": 16, "training.batch_size": 32, "memory.recompute": "none",
            "memory.budget": "150GiB"}, "--plan-only")
        shapes, head = {}, {}
        for function in self.explain(plan)["functions"]:
            if function["name"] == "eval":
                continue
            for command in function["commands"]:
                if command["kind"] != "gemm":
                    continue
                shape = {key: command[key] for key in (
                    "m", "n", "k", "transpose_a", "transpose_b", "result_dtype", "accumulate", "seconds")}
                source = re.sub(r"^layers\.\d+/", "", command["source"])
                kind = "wgrad" if shape["transpose_a"] else "dgrad" if not shape["transpose_b"] else "forward"
                if source == "loss":
                    if kind != "wgrad" or shape["accumulate"]:
                        head[kind] = shape
                else:
                    shapes.setdefault(f"{source} {kind}" + (", adds" if shape["accumulate"] else ""), shape)
        chunk = head["forward"]["m"]
        for tokens in (1024, 4096):
            for kind, shape in head.items():
                side = "k" if kind == "wgrad" else "m"
                shapes[f"head, chunk {tokens}: {kind}"] = {
                    **shape, side: tokens, "seconds": shape["seconds"] if tokens == chunk else None}
        (self.folder / "gemms.json").write_text(json.dumps(
            [{"name": name, **shape} for name, shape in shapes.items()], indent=1))

    def runner(self) -> None:
        """Copies lmc-run, with the libraries that it links: its RPATH is $ORIGIN/../lib."""
        for name in ("bin", "lib"):
            (self.folder / name).mkdir()
        program = self.folder / "bin/lmc-run"
        subprocess.run(["strip", "-o", program, self.bin / "lmc-run"], check=True)
        listed = subprocess.run(["ldd", self.bin / "lmc-run"], check=True, capture_output=True, text=True).stdout
        for name, path in re.findall(r"^\s*(\S+) => (/\S+)", listed, re.M):
            if not GLIBC.match(name):
                shutil.copy(path, self.folder / "lib" / name)

    def sources(self) -> None:
        for name in ("run", "session.py", "peer.py"):
            if (HERE / name).exists():
                shutil.copy(HERE / name, self.folder)
        shutil.copytree(HERE / "sections", self.folder / "sections", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(ROOT / "compiler/targets/cuda/device", self.folder / "include/lmc")
        tiles = self.folder / "src/compiler/targets/cuda"
        tiles.mkdir(parents=True)
        shutil.copy(ROOT / "compiler/targets/cuda/AttentionTiles.def", tiles)
        for source in HERE.glob("*.cu"):
            shutil.copy(source, self.folder / "src")
        (self.folder / "src/instructions.cu").write_text(self.call("instruction-cases"))


def commit() -> str:
    """Returns the commit that is packed, with a + if files differ from it."""
    def git(*args: str) -> str:
        return subprocess.run(["git", "-C", ROOT, *args], capture_output=True, text=True).stdout.strip()
    return (git("rev-parse", "HEAD") or "unknown") + ("+" if git("status", "--porcelain", "-uno") else "")


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev gpu pack", description=__doc__.split("\n")[0])
    build = Path(os.environ.get("LMC_BUILD_DIR") or ROOT / "build").resolve()
    parser.add_argument("folder", nargs="?", type=Path, default=build / "gpu",
                        help="folder to fill; what it holds is replaced (default: build/gpu)")
    parser.add_argument("--arch", default="sm_90a", help="the GPU's architecture (default: sm_90a: H100, H200)")
    parser.add_argument("--spec", default="h100-sxm", help="device spec of the predictions (default: h100-sxm)")
    args = parser.parse_args()
    folder = args.folder.resolve()
    if folder.exists() and any(folder.iterdir()) and not (folder / "manifest.json").exists():
        raise SystemExit(f"pack: error: {folder} is not empty and was not packed by this program; "
                         "remove it or name another folder")
    shutil.rmtree(folder, ignore_errors=True)
    pack = Pack(folder, build, args.arch, args.spec)
    # First, so that a pack that is interrupted can be repeated.
    (folder / "manifest.json").write_text(json.dumps({"commit": commit(), "arch": args.arch, "spec": args.spec}))
    pack.runner()
    pack.sources()
    batch = {"model.num_hidden_layers": 2, "training.batch_size": 8, "training.micro_batch_size": 4}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        work = [pool.submit(pack.kernels, "kernels", batch),
                pool.submit(pack.kernels, "small", {**batch, **SMALL}), pool.submit(pack.gemms),
                *(pool.submit(pack.prices, columns) for columns in PRICED)]
        for each in work:
            each.result()
    shutil.rmtree(pack.scratch)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
    if size > LIMIT_MB:
        raise SystemExit(f"pack: error: {folder} has {size:.1f} MB, and {LIMIT_MB} may be brought along")
    print(f"packed {size:.1f} of at most {LIMIT_MB} MB into {folder}; there: {folder.name}/run [SECTION...]")


if __name__ == "__main__":
    main()
