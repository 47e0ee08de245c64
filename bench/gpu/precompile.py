"""Compiles the programs of the sections with nvcc where the folder is packed, so that no time on the GPU is spent on
compiling. Used by pack.py."""

import concurrent.futures
import importlib
import os
import shutil
import subprocess
from pathlib import Path

from session import nvcc_command

WITH_PROGRAMS = ("ceilings", "power", "streams", "products", "kernels", "attention", "gemm")


def programs(data: Path) -> dict[str, tuple[Path, list]]:
    """Returns all programs of the sections: name -> source, options."""
    made = {}
    for section in WITH_PROGRAMS:
        made.update(importlib.import_module(f"sections.{section}").programs(data))
    return made


def precompile(data: Path, arch: str) -> str:
    """Fills data/programs, with the CUDA runtime that the programs link beside them. Returns a line about it."""
    nvcc = shutil.which("nvcc", path=os.environ["PATH"] + os.pathsep + "/usr/local/cuda/bin")
    if not nvcc:
        return "no program is compiled: nvcc is neither on the PATH nor in /usr/local/cuda/bin"
    folder = data / "programs"
    folder.mkdir()

    def one(name: str, how: tuple[Path, list]) -> None:
        command = nvcc_command(nvcc, arch, data, *how, folder / name)
        # The CUDA runtime lies beside the program, and the C++ library in lib/ of the folder that is packed.
        command += ["-cudart", "shared", "-Xlinker", "-rpath=$ORIGIN:$ORIGIN/../../../lib", "-Xlinker", "-s"]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"pack: error: {' '.join(map(str, command))}: {done.stderr.strip()}")

    every = programs(data)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(one, every, every.values()))
    (library,) = {line.split()[2] for name in every for line in subprocess.run(
        ["ldd", folder / name], capture_output=True, text=True,
        env={**os.environ, "LD_LIBRARY_PATH": str(Path(nvcc).resolve().parents[1] / "lib64")}).stdout.splitlines()
        if "libcudart" in line}
    shutil.copy(library, folder / Path(library).name)
    return f"{len(every)} programs are compiled for {arch}"
