#!/usr/bin/env python3
"""Whether two builds of lmc make the same plans: the proof that a refactoring changed nothing.

    same-plans.py dump --lmc=build/bin/lmc --schema=ground/plan/plan.fbs -o DIR [--only=REGEX]
    same-plans.py compare BEFORE AFTER [--renamed-kernels]

`dump` compiles every config of models/configs for each target with each recompute mode and writes
one normalised JSON text per plan. `compare` says which plans differ, and where first. The two dumps
may come from builds with different schemas: what a schema step only moves is brought to one form
(`normalised`), and what says nothing about the job is left out. Exit code 1 where plans differ.

With --renamed-kernels two plans are the same if one renaming of kernels, one to one, makes them so.
"""
import argparse
import concurrent.futures
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGETS = ["cpu", "cuda:sm_80", "cuda:sm_90a"]
RECOMPUTE = ["none", "auto", "block"]
# Every config fits on one device of this size, so that recompute "auto" always has an answer.
JOB = ["--nodes=1", "--devices-per-node=1", "--memory-budget=400GiB"]
# Budgets with which "auto" has to choose; of the configs that they are named for.
TIGHT = {"llama1b": "40GiB", "mistral-7b": "126GiB"}
# Jobs beyond the shipped configs: other ops, other state.
VARIANTS = [
    ("test-tiny", "f32", ["training.compute_dtype=f32"]),
    ("test-tiny", "f64", ["training.compute_dtype=f64"]),
    ("test-tiny", "bf16", ["training.compute_dtype=bf16"]),
    ("test-tiny", "8bit", ["optimizer.type=adamw8bit"]),
    ("test-tiny", "muon", ["optimizer.type=muon"]),
    ("test-tiny", "documents", ["training.document_mask=true"]),
    ("test-tiny", "logits", ["monitoring.logits=true"]),
    ("test-tiny", "biases", ["model.attention_bias=true", "model.mlp_bias=true"]),
    ("test-tiny", "biases-bf16", ["model.attention_bias=true", "model.mlp_bias=true",
                                  "training.compute_dtype=bf16"]),
    ("test-mistral", "documents", ["training.document_mask=true", "training.compute_dtype=bf16"]),
]


def jobs():
    """(name, TOML, arguments of `lmc compile`) of every plan that is compared."""
    for config in sorted((ROOT / "models/configs").glob("*.toml")):
        for target in TARGETS:
            common = [f"--target={target}", *JOB]
            device = target.replace(":", "-")
            for mode in RECOMPUTE:
                yield (f"{config.stem}.{device}.{mode}", config,
                       common + [f"--set=memory.recompute={mode}"])
            if TIGHT.get(config.stem) and target != "cpu":
                yield (f"{config.stem}.{device}.tight", config,
                       common[:-1] + [f"--memory-budget={TIGHT[config.stem]}",
                                      "--set=memory.recompute=auto"])
            for stem, name, settings in VARIANTS:
                if stem == config.stem:
                    yield (f"{config.stem}.{device}.{name}", config,
                           common + [f"--set={setting}" for setting in settings])


def normalised(plan):
    """`plan`, as flatc prints it, without what is no part of the job, in one form for all schemas."""
    for field in ("schema_version", "compiler_version"):
        plan.pop(field, None)
    for module in plan["modules"]:
        image = bytes(module.pop("image", []))
        # NVRTC writes hashes of the text into a cubin, comments of headers included: what is
        # compared is the kernels' text, registers and spills.
        if not module["target"].startswith("cuda"):
            module["image"] = f"{len(image)} bytes, sha256 {hashlib.sha256(image).hexdigest()}"
    for function in plan["functions"]:
        function.pop("segments", None)  # schema 2: one segment of all commands
        for command in function["commands"]:
            body = command["body"]
            for hoisted in ("launches", "workspace"):  # schema 2 has them in the bodies
                if body.get(hoisted) not in (None, [], -1):
                    command[hoisted] = body[hoisted]
                body.pop(hoisted, None)
            for field in ("layer",):  # from schema 3 on
                command.pop(field, None)
    plan["model"].pop("traffic_floor", None)  # from schema 3 on
    for variable in plan["variables"]:
        for field in ("setting", "step_value"):  # from schema 3 on
            variable.pop(field, None)
    return plan


def text_of(schema, build, path):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["flatc", "--json", "--strict-json", "--raw-binary", "-o", folder,
                        "-I", str(build / "ground/plan"), str(schema), "--", str(path)], check=True)
        text = (pathlib.Path(folder) / (path.stem + ".json")).read_text(encoding="utf-8")
    plan = json.loads(re.sub(r"(: -?)inf(,?)$", r"\1Infinity\2", text, flags=re.MULTILINE))
    return json.dumps(normalised(plan), indent=1, sort_keys=True) + "\n"


def dump(arguments):
    out = pathlib.Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    build = pathlib.Path(arguments.lmc).resolve().parents[1]  # with the part of the schema that it makes

    def one(job):
        name, config, options = job
        with tempfile.TemporaryDirectory() as folder:
            plan = pathlib.Path(folder) / "job.plan"
            made = subprocess.run([arguments.lmc, "compile", str(config), "-o", str(plan), "--quiet",
                                   *options], capture_output=True, text=True)
            text = (text_of(arguments.schema, build, plan) if made.returncode == 0 else
                    f"exit code {made.returncode}\n{made.stderr}")
        (out / f"{name}.json").write_text(text.replace(str(ROOT), "ROOT"), encoding="utf-8")
        return name, made.returncode

    wanted = [job for job in jobs() if re.search(arguments.only, job[0])]
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        failed = [name for name, code in pool.map(one, wanted) if code != 0]
    print(f"{len(wanted)} jobs, {len(failed)} without a plan" +
          "".join(f"\n  {name}" for name in failed))
    return 0


def renamed(text):
    """`text` with kernels called k0, k1 ... in the order of the plan. CPU images are left out: they
    hold the names of kernels."""
    names = [kernel["name"] for kernel in json.loads(text)["kernels"]]
    number = {name: f"k{i}" for i, name in enumerate(names)}
    either = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    # In JSON a line of a kernel's text begins behind the two characters \n.
    pattern = re.compile(rf"(?:(?<=\\n)|\b)(lmc_)?({either})\b")
    text = pattern.sub(lambda match: (match.group(1) or "") + number[match.group(2)], text)
    return re.sub(r'"image": "\d+ bytes, sha256 \w+"', '"image": ""', text)


def show_first_difference(old, new, context=3, most=12):
    """The lines around the first one in which two texts differ."""
    at = next((i for i, (x, y) in enumerate(zip(old, new)) if x != y), min(len(old), len(new)))
    print("\n".join(f"  {line[:160]}" for line in old[max(0, at - context):at]))
    for sign, lines in (("-", old), ("+", new)):
        print("\n".join(f"{sign} {line[:160]}" for line in lines[at:at + most]))


def without_prose(text):
    """A dumped plan without texts for people: the docs of settings and the comments of the TOML."""
    if not text.startswith("{"):
        return text
    plan = json.loads(text)
    for setting in plan.get("settings") or []:
        setting.pop("doc", None)
    if "config_toml" in plan:
        plan["config_toml"] = tomllib.loads(plan["config_toml"])
    return json.dumps(plan, indent=1, sort_keys=True)


def compare(arguments):
    before, after = pathlib.Path(arguments.before), pathlib.Path(arguments.after)
    names = sorted(path.name for path in after.glob("*.json"))
    missing = [name for name in names if not (before / name).exists()]
    different = []
    for name in names:
        if name in missing:
            continue
        old, new = (without_prose(path.read_text(encoding="utf-8"))
                    for path in (before / name, after / name))
        if arguments.renamed_kernels and old != new and old[0] == new[0] == "{":
            old, new = renamed(old), renamed(new)
        if old != new:
            different.append(name)
            if len(different) <= arguments.most:
                print(f"== {name}")
                show_first_difference(old.splitlines(), new.splitlines())
    print(f"{len(names) - len(missing) - len(different)} of {len(names)} plans are the same" +
          (f"; {len(different)} differ: {' '.join(different)}" if different else "") +
          (f"; {len(missing)} have nothing to be compared with" if missing else ""))
    return 1 if different or missing or not names else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("dump")
    one.add_argument("--lmc", required=True)
    one.add_argument("--schema", required=True)
    one.add_argument("--only", default="")
    one.add_argument("--jobs", type=int, default=2)
    one.add_argument("-o", dest="out", required=True)
    one.set_defaults(run=dump)
    two = commands.add_parser("compare")
    two.add_argument("before")
    two.add_argument("after")
    two.add_argument("--renamed-kernels", action="store_true")
    two.add_argument("--most", type=int, default=3, help="differences to print")
    two.set_defaults(run=compare)
    arguments = parser.parse_args()
    return arguments.run(arguments)


if __name__ == "__main__":
    sys.exit(main())
