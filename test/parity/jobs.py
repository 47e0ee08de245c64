"""Training jobs as TOML files with the token files they read."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from reference import Model, Optimizer


def toml_value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {toml_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return json.dumps(value)  # strings, booleans and numbers are written as in JSON


@dataclass
class Job:
    """One TOML file. Unless `epoch_steps` says more, the token file beside it holds exactly one
    step's windows, so every step is trained on all of them, in whatever order the sampler draws."""

    model: Model = field(default_factory=Model)
    optimizer: Optimizer = field(default_factory=Optimizer)
    sequence_length: int = 32
    batch_size: int = 8
    micro_batch_size: int = 8
    train_iters: int = 10
    compute_dtype: str = "f32"
    seed: int = 1234
    epoch_steps: int = 1  # steps until a token comes again
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)  # section -> keys
    tables: list[tuple[str, dict[str, Any]]] = field(default_factory=list)  # [[section]], keys

    def sections(self) -> dict[str, dict[str, Any]]:
        optimizer = asdict(self.optimizer)
        schedule = {k: optimizer.pop(k) for k in ("lr", "min_lr", "warmup_iters", "decay_iters")}
        sections = {
            "model": self.model.keys(),
            "training": {
                "sequence_length": self.sequence_length,
                "batch_size": self.batch_size,
                "micro_batch_size": self.micro_batch_size,
                "train_iters": self.train_iters,
                "compute_dtype": self.compute_dtype,
                "seed": self.seed,
            },
            "optimizer": {"type": "adamw", **optimizer},
            "lr_schedule": {"style": "cosine", **schedule},
            "data": {"train": ["train.bin"]},
        }
        # Steps wait for saves, so that which checkpoints exist does not depend on the disk's speed.
        sections["checkpoint"] = {"background": False}
        for section, keys in self.settings.items():
            sections.setdefault(section, {}).update(keys)
        return sections

    def toml(self) -> str:
        headers = [(f"[{section}]", keys) for section, keys in self.sections().items()]
        headers += [(f"[[{section}]]", keys) for section, keys in self.tables]
        return "\n".join(
            f"{header}\n" + "".join(f"{k} = {toml_value(v)}\n" for k, v in keys.items())
            for header, keys in headers
        )

    def tokens(self) -> np.ndarray:
        """Windows, each sharing its last token with the next one's first."""
        count = self.epoch_steps * self.batch_size * self.sequence_length + 1
        return np.random.default_rng(self.seed).integers(self.model.vocab_size, size=count)

    def windows(self) -> torch.Tensor:
        """[batch_size, sequence_length + 1]: what each step is trained on."""
        assert self.epoch_steps == 1, "the sampler decides"
        tokens = torch.from_numpy(self.tokens())
        return tokens.unfold(0, self.sequence_length + 1, self.sequence_length)

    def write(self, folder: Path, name: str = "job") -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        write_tokens(folder / "train.bin", self.tokens())
        path = folder / f"{name}.toml"
        path.write_text(self.toml())
        return path


def write_tokens(path: Path, tokens: np.ndarray) -> None:
    """In nanoGPT's format: bare uint16."""
    tokens.astype("<u2").tofile(path)
