"""What `cmake --install` makes: programs that run anywhere below any folder, with their libraries and the notices of these."""

import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

PROGRAMS = ("lmc", "lmc-data", "lmc-opt", "lmc-run", "lmc-translate", "lmc-wandb")
# What Debian 12 has, and Ubuntu 24.04 too: the platform manylinux_2_36.
NEWEST = {"GLIBC": (2, 36), "GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13), "GCC": (12, 0, 0)}
# Of the machine: glibc, GCC's C++ library; and, where the machine has them, the libraries of Gloo.
SYSTEM = re.compile(r"ld-linux|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)\.so")
GLOO = re.compile(r"lib(hiredis|ibverbs|nl-3|nl-route-3)\.so")
LIMIT_MB = 40  # of the package for clusters


def install(build: Path, prefix: Path, *options: str) -> None:
    subprocess.run(["cmake", "--install", build, "--strip", "--prefix", prefix, *options], check=True, stdout=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def tree(programs, tmp_path_factory):
    """An installation that was moved to another folder afterwards, as the Python package `lmc` of the wheel is."""
    folder = tmp_path_factory.mktemp("install")
    install(programs.build, folder / "first")
    packages = folder / "prefix/lib/python3.11/site-packages"
    packages.mkdir(parents=True)
    (folder / "first").rename(packages / "lmc")
    yield packages / "lmc"
    shutil.rmtree(folder)


def run(program: Path, *arguments: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess:
    """Runs a program in an environment of nothing but a home without anything in it, and PATH for `env python3`."""
    return subprocess.run([program, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, errors="replace",
                          env={"HOME": str(cwd), "PATH": "/usr/bin:/bin", "LMC_GEMM": "default", **environment})


def test_every_program_says_its_commit_and_date(tree, tmp_path):
    assert sorted(path.name for path in (tree / "bin").iterdir()) == sorted(PROGRAMS)
    for name in PROGRAMS:
        done = run(tree / "bin" / name, "--version", cwd=tmp_path)
        assert re.fullmatch(rf"{name} \d+\.\d+\.\d+ \(commit [0-9a-f]{{12}}, 20\d\d-\d\d-\d\d\)\n", done.stdout), done


def job(tree: Path, folder: Path) -> list[str]:
    """Writes a text; returns the arguments of lmc that compile a small job of its tokens."""
    shutil.copy(tree / "share/lmc/configs/test-tiny.toml", folder / "job.toml")
    (folder / "text.txt").write_text("In the beginning God created the heaven and the earth.\n" * 400)
    return ["compile", "job.toml", "-o", "job.plan", "--set", 'data.train=["train.bin"]',
            "--set", "data.validation=[]", "--set", "training.train_iters=2", "--set", "lr_schedule.warmup_iters=1", "--set", "model.vocab_size=256"]


def test_a_moved_installation_trains_from_a_text(tree, tmp_path):
    for name, arguments in (("lmc-data", ["pack", "text.txt", "-o", "train.bin"]), ("lmc", job(tree, tmp_path)),
                            ("lmc-run", ["job.plan", "--out=run"]), ("lmc-data", ["export", "run", "-o", "hf"]),
                            ("lmc", ["report", "run", "-o", "run.html"])):
        done = run(tree / "bin" / name, *arguments, cwd=tmp_path)
        assert done.returncode == 0, (name, done.stderr)
    assert (tmp_path / "hf/model.safetensors").exists() and (tmp_path / "run.html").exists()


def test_an_installation_needs_nothing_else_of_the_machine(tree, tmp_path):
    files = [path for folder in ("bin", "lib") for path in (tree / folder).rglob("*")
             if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]
    assert len(files) > 20
    for name in PROGRAMS[:5]:
        listed = run(Path("/usr/bin/ldd"), tree / "bin" / name, cwd=tmp_path).stdout
        for line in listed.splitlines():
            library = line.split()[0]
            assert "not found" not in line, line
            assert (SYSTEM.search(library) or "vdso" in library or GLOO.match(library) or
                    line.split()[2].startswith(str(tree.resolve()))), line
    # Gloo's libraries are found where the machine has none of them.
    gloo = tree / "lib/lmc/fallback"
    assert all(GLOO.match(path.name) for path in gloo.iterdir()) and len(list(gloo.iterdir())) == 4
    runpath = subprocess.run(["readelf", "-d", tree / "lib/lmc/libgloo.so.0"], capture_output=True, text=True, check=True).stdout
    assert "RUNPATH" in runpath and "$ORIGIN/fallback]" in runpath
    # Nothing needs a newer system than the wheel's tag says.
    for path in files:
        needs = subprocess.run(["readelf", "-V", path], capture_output=True, text=True, check=True).stdout
        needs = needs[needs.find("Version needs section"):]
        for family, version in re.findall(r"Name: (GLIBC|GLIBCXX|CXXABI|GCC)_([\d.]+)", needs):
            assert tuple(map(int, version.split("."))) <= NEWEST[family], f"{path.name} needs {family}_{version}"


def test_every_library_has_its_notice(tree):
    licenses = tree / "share/doc/lmc/licenses"
    table = dict(re.findall(r"^(lib\S+\.so\S*): (\S+)$", (licenses / "NOTICES.txt").read_text(), re.M))
    libraries = {path.name for path in (tree / "lib/lmc").rglob("*.so*")} - {"liblmc-parquet.so"}
    assert set(table) == libraries
    assert table["libz3.so.4"] == "libz3-4" and table["libz.so.1"] == "zlib1g" and table["libgloo.so.0"] == "libgloo0"
    named = set(re.findall(r"^(\S+) \S+$", (licenses / "NOTICES.txt").read_text().split("part of the programs:")[1], re.M))
    assert set(table.values()) < named and {"libtomlplusplus-dev", "libcli11-dev", "libflatbuffers-dev"} < named
    for package in named:
        assert re.search("(?i)copyright|licen[sc]e", (licenses / f"{package}.txt").read_text(errors="replace")), package


def test_a_library_without_a_notice_is_an_error(tree, root, tmp_path):
    """Of lmc-data with one library more, which no package has."""
    library, program, prefix = tmp_path / "libunknown.so", tmp_path / "lmc-data", tmp_path / "prefix"
    shutil.copy(tree / "lib/lmc/libxxhash.so.0", library)
    shutil.copy(tree / "bin/lmc-data", program)
    subprocess.run(["patchelf", "--set-soname", library.name, library], check=True)
    subprocess.run(["patchelf", "--add-needed", library.name, program], check=True)
    subprocess.run(["patchelf", "--set-rpath", f"{tmp_path}:{tree / 'lib/lmc'}", program], check=True)
    (prefix / "bin").mkdir(parents=True)
    shutil.copy(program, prefix / "bin")
    done = subprocess.run(["cmake", f"-DCMAKE_INSTALL_PREFIX={prefix}", f"-DPROGRAMS={program}", "-DLIBRARIES=lib/lmc", "-DSYSTEM=/usr/lib",
                           f"-DPATCHELF={shutil.which('patchelf')}", "-DLLVM=22", "-P", root / "cmake/BundleLibraries.cmake"],
                          capture_output=True, text=True)
    assert done.returncode != 0 and re.search(r"belongs to no package,\s+so\s+that\s+the\s+notice", done.stderr), done.stderr


def test_lmc_run_alone_is_small(programs, tmp_path):
    install(programs.build, tmp_path / "lmc-run", "--component", "lmc-run")
    assert sorted(path.name for path in (tmp_path / "lmc-run/bin").iterdir()) == ["lmc-run", "lmc-wandb"]
    notices = (tmp_path / "lmc-run/share/doc/lmc/licenses/NOTICES.txt").read_text()
    assert "libdnnl.so.2: libdnnl2" in notices and "LLVM" not in notices and "tomlplusplus" not in notices
    with tarfile.open(tmp_path / "package.tar.gz", "w:gz", compresslevel=6) as package:
        package.add(tmp_path / "lmc-run", "lmc-run")
    size = (tmp_path / "package.tar.gz").stat().st_size / 1e6
    print(f"lmc-run alone: {size:.1f} MB")
    assert size < LIMIT_MB


def opened(done: subprocess.CompletedProcess, library: Path) -> bool:
    """Whether the loader (LD_DEBUG=files) has opened a library at this path and no other."""
    found = {os.path.normpath(path) for path in re.findall(rf"calling init: (\S*/{re.escape(library.name)})", done.stderr)}
    return found == {str(library)}


def test_programs_of_a_wheel_open_the_libraries_of_its_extras(tree, root, tmp_path):
    """PyPI's packages lie where pip puts them; those of this environment stand for them."""
    venv = Path(os.environ.get("LMC_VENV", Path.home() / ".cache/lmc/venv"))
    (theirs,) = venv.glob("lib/python3*/site-packages")
    mkl, nvrtc = venv / "lib/libmkl_rt.so.3", "nvidia/cu13/lib/libnvrtc.so.13"
    packages = tree.parent
    shutil.copytree(root / "packaging/wheel/lmc", tree, dirs_exist_ok=True)
    for name in ("nvidia", "pyarrow"):
        (packages / name).symlink_to(theirs / name)
    for library in mkl.parent.glob("libmkl_*"):
        (packages.parent.parent / library.name).symlink_to(library)
    plan = job(tree, tmp_path)
    assert run(tree / "bin/lmc-data", "pack", "text.txt", "-o", "train.bin", cwd=tmp_path).returncode == 0
    if mkl.exists():
        assert run(tree / "bin/lmc", *plan, cwd=tmp_path).returncode == 0
        done = run(tree / "bin/lmc-run", "job.plan", "--out=mkl", cwd=tmp_path, LD_DEBUG="files", LMC_GEMM="measure")
        assert done.returncode == 0 and opened(done, packages.parent.parent / mkl.name), done.stderr[-2000:]
    if (theirs / nvrtc).exists():
        done = run(tree / "bin/lmc", *plan, "--target=cuda:sm_90a", "--kernel-cache=off", cwd=tmp_path, LD_DEBUG="files")
        assert done.returncode == 0 and opened(done, packages / nvrtc), done.stderr[-2000:]
    if (theirs / "pyarrow").exists():
        import pyarrow
        import pyarrow.parquet
        pyarrow.parquet.write_table(pyarrow.table({"text": ["In the beginning", "And God said"]}), tmp_path / "a.parquet")
        done = run(tree / "bin/lmc-data", "pack", "a.parquet", "-o", "p.bin", cwd=tmp_path, LD_DEBUG="files")
        (arrow,) = (theirs / "pyarrow").glob("libarrow.so.*[0-9]")
        assert done.returncode == 0 and opened(done, packages / "pyarrow" / arrow.name), done.stderr[-2000:]


def test_the_wheels_extra_is_the_release_of_arrow_that_it_is_built_with(root):
    built = re.search(r"^pyarrow==(\d+\.\d+)\.", (root / "test/parity/requirements.txt").read_text(), re.M).group(1)
    assert f'"pyarrow=={built}.*"' in (root / "packaging/wheel/pyproject.toml").read_text()
