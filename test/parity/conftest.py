import os
import zlib
from pathlib import Path

import pytest
import torch

from jobs import Job
from programs import Programs

# These models are too small for threads, which on busy cores would only wait for each other.
torch.set_num_threads(1)

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def threads(request, monkeypatch) -> None:
    """Programs take one thread in three of four tests, because these models are too small for more, and as many as
    there are processors in the others. No result depends on it."""
    if zlib.crc32(request.node.nodeid.encode()) % 4:
        monkeypatch.setenv("OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def programs() -> Programs:
    # Tests take the fixed implementations of matrix products, so that they neither time them nor use
    # the choices in the user's cache.
    os.environ["LMC_GEMM"] = "default"
    return Programs(Path(os.environ.get("LMC_BUILD", ROOT / "build")).resolve())


@pytest.fixture(scope="session")
def compiled(programs, tmp_path_factory):
    """compiled(job, options of lmc compile) -> its plan; a job is compiled once however many tests
    run it. The plan's folder holds job.toml, train.bin and job.plan, and no test writes there."""
    plans: dict[tuple[str, int, *tuple[str, ...]], Path] = {}

    def compile_job(job: Job, *options: str) -> Path:
        key = (job.toml(), job.epoch_steps, *options)
        if key not in plans:
            folder = tmp_path_factory.mktemp("job")
            toml = job.write(folder)
            programs.run("lmc", "compile", toml, "-o", folder / "job.plan", *options).ok()
            plans[key] = folder / "job.plan"
        return plans[key]

    return compile_job
