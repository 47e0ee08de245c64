"""Reads the recipes of container images, which no test builds, and checks what can be checked without building.

    container.py ROOT [FOLDER]      FOLDER has Dockerfile and lmc.def; without it, ROOT/container

* Each instruction and section is a known one; each command parses as shell.
* What is copied from the clone exists, and is all that a build needs: every folder of ROOT, and the files of CMake.
* What one stage takes from another lies where `./dev image` puts it, and its environment names only such paths.
* Packages come from `./dev setup`, whose list `./dev packages` prints: no recipe names a package of it. The image of
  lmc-run has the packages of RUN_PACKAGES besides.
* Both recipes say the same: base images, what is copied, what is run, and the environment of lmc-run.

Prints each fault as FILE: error: ...; exit code 1 where there is one.
"""
import pathlib
import re
import shlex
import subprocess
import sys

INSTRUCTIONS = {"FROM", "ENV", "WORKDIR", "COPY", "RUN", "CMD", "ENTRYPOINT"}
SECTIONS = {"files", "post", "environment", "runscript"}
HEADERS = {"Bootstrap", "From", "Stage"}
BASES = ["debian:bookworm", "debian:bookworm-slim"]  # Debian 12, for which docs/install.md and dev are written
RUN_PACKAGES = {"libibverbs1", "ibverbs-providers"}
INSTALLED = {"/opt/lmc", "/opt/lmc-run", "/opt/cuda", "/opt/nvrtc"}  # what `./dev image /opt` makes
NOT_BUILT = {"container"}  # folders that a build does not need


class Stage:
    def __init__(self, base):
        self.base, self.name = base, ""
        self.copied, self.taken, self.commands, self.environment = [], [], [], {}


def assignments(text):
    return dict(word.split("=", 1) for word in shlex.split(text) if "=" in word)


def read_dockerfile(text, fault):
    stages = []
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    for line in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines():
        instruction, rest = line.split(None, 1)
        words = rest.split()
        if instruction not in INSTRUCTIONS:
            fault(f"'{instruction}' is no instruction that this test knows")
        elif instruction == "FROM":
            stages.append(Stage(words[0]))
            stages[-1].name = words[2]
        elif instruction == "COPY" and words[0].startswith("--from="):
            if words[0][7:] not in [stage.name for stage in stages[:-1]]:
                fault(f"COPY takes from '{words[0][7:]}', which is no stage above")
            stages[-1].taken += words[1:-1]
        elif instruction == "COPY":
            stages[-1].copied += words[:-1]
        elif instruction == "RUN":
            stages[-1].commands += [command.strip() for command in rest.split("&&")]
        elif instruction == "ENV":
            stages[-1].environment |= assignments(rest)
        elif instruction in ("CMD", "ENTRYPOINT"):
            stages[-1].environment["start"] = " ".join(re.findall(r'"([^"]+)"', rest))
    return stages


def read_definition(text, fault):
    stages, section = [], ""
    for line in text.splitlines():
        words = line.split("#")[0].split()
        header = re.match(r"(\w+): (\S+)$", line)
        if not words:
            continue
        if line.startswith("%"):
            section = words[0][1:]
            if section not in SECTIONS:
                fault(f"'%{section}' is no section that this test knows")
        elif header:
            section = ""
            if header.group(1) not in HEADERS:
                fault(f"'{header.group(1)}' is no header that this test knows")
            elif header.group(1) == "From":
                stages.append(Stage(header.group(2)))
            elif header.group(1) == "Stage":
                stages[-1].name = header.group(2)
        elif section == "files" and words[0].startswith("/"):
            stages[-1].taken.append(words[0])
        elif section == "files":
            stages[-1].copied.append(words[0])
        elif words[0] == "export":
            stages[-1].environment |= assignments(" ".join(words[1:]))
        elif section == "post" and words[0] != "cd":
            stages[-1].commands.append(" ".join(words))
        elif section == "runscript":
            stages[-1].environment["start"] = words[1]
    return stages


def check(root, path, stages, packages, fault):
    text = path.read_text(encoding="utf-8")
    if "://" in text:
        fault("it names an address; packages come from where the base image and pip look by themselves")
    for base in {stage.base for stage in stages} - set(BASES):
        fault(f"the base image {base} is none of {', '.join(BASES)}")
    if stages[0].name != "build" or stages[-1].name != "run":
        fault("the first stage is to be 'build' and the last one 'run'")
    build, run = stages[0], stages[-1]
    for name in build.copied:
        if not (root / name).exists():
            fault(f"it copies {name}, which does not exist")
    needed = {entry.name for entry in root.iterdir()
              if entry.is_dir() and not entry.name.startswith((".", "build", "runs")) and any(entry.iterdir())} - NOT_BUILT
    for name in sorted((needed | {"dev", "CMakeLists.txt", "CMakePresets.json"}) - set(build.copied)):
        fault(f"it does not copy {name}")
    for name in build.copied:
        # With Docker, `./dev setup` sees only what is copied before it.
        if name.startswith("test/") and name not in (root / "dev").read_text(encoding="utf-8"):
            fault(f"it copies {name} ahead of the tree, which dev does not read")
    if build.commands != ["./dev setup image", "./dev image /opt"]:
        fault(f"the stage 'build' runs {build.commands}, not ./dev setup image and ./dev image /opt")
    for stage in stages[1:]:
        for name in set(stage.taken) - INSTALLED:
            fault(f"the stage '{stage.name}' takes {name}, which './dev image /opt' does not make")
        for key, value in stage.environment.items():
            for name in re.findall(r"/opt/[\w-]+", value):
                if name not in stage.taken:
                    fault(f"{key} of the stage '{stage.name}' names {name}, which it does not have")
    for stage in stages:
        for command in stage.commands:
            parsed = subprocess.run(["bash", "-n", "-c", command], capture_output=True, text=True)
            if parsed.returncode != 0:
                fault(f"'{command}' is no command: {parsed.stderr.strip()}")
            if command.startswith("apt-get install"):
                named = {word for word in command.split()[2:] if not word.startswith("-")}
                if stage is not run or named != RUN_PACKAGES:
                    fault(f"the stage '{stage.name}' installs {', '.join(sorted(named))}: the list of packages is that of dev")
    if set(run.taken) != {"/opt/lmc-run", "/opt/cuda"}:
        fault(f"the image of lmc-run holds {', '.join(run.taken)}, not lmc-run and its libraries alone")
    for package in packages:
        if re.search(rf"(?<![\w./-]){re.escape(package)}(?![\w./-])", re.sub(r"#.*", "", text)) and package not in build.copied:
            fault(f"it names the package {package}, which ./dev setup installs")


def main(root, folder):
    faults = []
    packages = subprocess.run([root / "dev", "packages"], capture_output=True, text=True, check=True).stdout.split()
    read = {}
    for name, reader in (("Dockerfile", read_dockerfile), ("lmc.def", read_definition)):
        path = folder / name

        def fault(what):
            faults.append(f"{path}: error: {what}")

        read[name] = reader(path.read_text(encoding="utf-8"), fault)
        check(root, path, read[name], packages, fault)
    docker, apptainer = read.values()

    def same(what, first, second):
        if first != second:
            faults.append(f"{folder}: error: {what} differ: Dockerfile has {first}, lmc.def has {second}")

    same("base images", [docker[0].base, docker[-1].base], [apptainer[0].base, apptainer[-1].base])
    # Docker copies the requirements of pyarrow ahead of all tests, so that `./dev setup` is a layer of its own.
    same("files", sorted({name for name in docker[0].copied if "/" not in name}), sorted(set(apptainer[0].copied)))
    same("commands", [stage.commands for stage in (docker[0], docker[-1])], [stage.commands for stage in apptainer])
    same("what lmc-run's image takes", sorted(docker[-1].taken), sorted(apptainer[-1].taken))
    # NVIDIA's container toolkit reads these; Apptainer has --nv.
    same("environments", {key: value for key, value in docker[-1].environment.items() if not key.startswith("NVIDIA_")},
         apptainer[-1].environment)
    print("\n".join(faults) or f"2 recipes: {len(packages)} packages, {len(docker) + len(apptainer)} stages")
    return 1 if faults else 0


if __name__ == "__main__":
    root_folder = pathlib.Path(sys.argv[1]).resolve()
    sys.exit(main(root_folder, pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else root_folder / "container"))
