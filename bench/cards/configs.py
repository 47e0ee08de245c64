"""The configs that cards are of, and the programs that cards are made with."""

import hashlib
import json
import re
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The folders and files that programs are made of.
SOURCES = ("CMakeLists.txt", "cmake", "compiler", "corpus", "dialects", "ground", "models", "passes", "runtime", "tools")
# Published jobs that ran on another GPU than an H100: fms-fsdp's on A100 (docs/devices.md).
PUBLISHED_ON = {"fms-llama2-7b": "cuda:sm_80"}


class Fault(Exception):
    """Ends the work on a config, or all of it, with one line on stderr."""


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass
class Config:
    path: Path

    def __post_init__(self):
        self.text = self.path.read_text()
        self.keys = tomllib.loads(self.text)

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def device(self) -> str:
        """`cpu` or `cuda:sm_XY`: what the config names, else by the rule that the index states."""
        named = self.keys.get("target", {}).get("device")
        usual = "cpu" if self.keys["training"].get("compute_dtype") == "f32" else "cuda:sm_90a"
        return named or PUBLISHED_ON.get(self.name, usual)

    @property
    def options(self) -> list[str]:
        """What `lmc` is given beside the config."""
        default = self.keys.get("target", {}).get("device", "cpu")
        return [] if self.device == default else [f"--target={self.device}"]

    @property
    def nodes(self) -> int:
        return self.keys.get("distributed", {}).get("nodes", 1)

    @property
    def devices_per_node(self) -> int:
        return self.keys.get("distributed", {}).get("devices_per_node", 1)

    @property
    def strategy(self) -> str:
        return self.keys.get("distributed", {}).get("strategy", "zero1")


class Programs:
    """The built programs, and the commit that they say they are from."""

    def __init__(self, build: Path):
        self.build = build

    def path(self, name: str) -> Path:
        path = self.build / "bin" / name
        if not path.exists():
            raise Fault(f"bin/{name} of the build folder is not built: run ./dev build, or set LMC_BUILD")
        return path

    def release(self) -> str:
        """Such as "0.1.0 (commit 0123456789ab, 2026-11-25)", with a + behind the commit if sources differ from it now."""
        text = subprocess.run([self.path("lmc"), "--version"], check=True, capture_output=True, text=True).stdout
        release = text.strip().splitlines()[0].removeprefix("lmc ")
        found = re.search(r"commit (\w+)", release)
        differs = found and subprocess.run(
            ["git", "-C", ROOT, "diff", "--quiet", found[1], "--", *SOURCES], capture_output=True).returncode == 1
        return release.replace(found[0], found[0] + "+") if differs else release

    def explain(self, config: Config) -> dict:
        """Returns what `lmc explain --json` says of a config, whether its plan fits its budget or not."""
        done = subprocess.run([self.path("lmc"), "explain", config.path, *config.options, "--json"],
                              capture_output=True, text=True)
        if not done.stdout.startswith("{"):
            raise Fault(f"{config.name}: {last_line(done.stderr)}")
        return json.loads(done.stdout)


def last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no message"
