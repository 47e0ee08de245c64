"""The commands: each becomes the program of its name."""
import os
import sys
from functools import partial
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "bin"


def become(name: str) -> None:
    # lmc-run starts lmc-wandb. The command of this name beside the running one has the Python that pip
    # installs packages for; the program itself would take the `python3` in PATH.
    sender = Path(sys.argv[0]).absolute().with_name("lmc-wandb")
    if sender.exists():
        os.environ.setdefault("LMC_WANDB", str(sender))
    program = str(FOLDER / name)
    python = [sys.executable] if name == "lmc-wandb" else []
    command = [*python, program, *sys.argv[1:]]
    os.execv(command[0], command)


lmc = partial(become, "lmc")
lmc_data = partial(become, "lmc-data")
lmc_opt = partial(become, "lmc-opt")
lmc_run = partial(become, "lmc-run")
lmc_translate = partial(become, "lmc-translate")
lmc_wandb = partial(become, "lmc-wandb")
