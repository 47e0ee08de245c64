"""Checks the jobs of a page of recipes against what lmc says of them.

    recipes.py LMC PAGE FOLDER      FOLDER is a scratch folder

Each `toml` block of PAGE is a whole job, and its first line is a comment with the name of its file. `lmc explain` must
accept it for an H100 without a warning, and three kinds of comments behind its keys must be true:

    batch_size = 256                # 524,288 tokens a step
    train_tokens = 2_500_000_000    # 20 per parameter
    warmup_iters = 715              # 375M tokens

The rows of the page's table "| `FILE.toml` | C | rate | tokens a step | rate, tokens a step of the job |" must be
C = 6 x parameters x tokens, and the rate and the batch that DeepSeek LLM's law gives for C (arXiv 2401.02954, equation 1).
Prints each fault as PAGE:LINE: error: ..., LINE being that of the block or of the row; exit code 1 where there is one.
"""
import json
import math
import pathlib
import re
import subprocess
import sys

BLOCK = re.compile(r"^```toml\n# (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| `(\S+\.toml)` \| (\S+) \| (\S+) \| (\S+) \| (\S+), (\S+) \|$", re.MULTILINE)
# Smaller micro-batches and whole layers recomputed fit any device, and leave the search for faster plans out.
SMALL = ("--set=training.micro_batch_size=1", "--set=memory.recompute=block")
UNITS = {"": 1, "M": 1e6, "B": 1e9, "T": 1e12}
ROUNDED = 0.06  # what a number with two digits may be off by


def number(text):
    """Of "524,288", "375M", "10.5B", "1.9e18"."""
    value, unit = re.fullmatch(r"([\d.,]+(?:e[-+]?\d+)?)([MBT]?)", text).groups()
    return float(value.replace(",", "")) * UNITS[unit]


def near(a, b, tolerance):
    return math.isclose(a, b, rel_tol=tolerance)


def faults_of(lmc, folder, name, text):
    """Runs `lmc explain` of a job: the faults of its block, and what the report says of it (None if it is refused)."""
    (folder / name).write_text(text, encoding="utf-8")
    done = subprocess.run([lmc, "explain", folder / name, "--target=cuda:sm_90a", "--json", *SMALL],
                          capture_output=True, text=True)
    if done.returncode != 0:
        return [f"lmc refuses it: {done.stderr.strip()}"], None
    report = json.loads(done.stdout)
    faults = [f"lmc warns: {warning}" for warning in report["warnings"]]
    step = report["batch"]["tokens_per_step"]
    warmup = re.search(r"^warmup_iters = (\d+)", text, re.MULTILINE)
    for pattern, what, true, tolerance in (
            (r"^batch_size = \d+ +# (\S+) tokens a step", "tokens a step", step, 0),
            (r"^train_tokens = \S+ +# (\S+) per parameter", "tokens per parameter", report["job"]["tokens_per_parameter"], 0.02),
            (r"^warmup_iters = \d+ +# (\S+) tokens", "tokens of the warm-up", int(warmup.group(1)) * step if warmup else 0, 0.01)):
        said = re.search(pattern, text, re.MULTILINE)
        if said and not near(number(said.group(1)), true, tolerance):
            faults.append(f"{what}: a comment says {said.group(1)}, lmc says {true:g}")
    return faults, report


def main(lmc, page, folder):
    folder.mkdir(parents=True, exist_ok=True)
    text = page.read_text(encoding="utf-8")
    reports, faults, jobs = {}, [], 0

    def report_faults(match, found):
        faults.extend(f"{page}:{text.count(chr(10), 0, match.start()) + 1}: error: {fault}" for fault in found)

    for block in BLOCK.finditer(text):
        jobs += 1
        found, reports[block.group(1)] = faults_of(lmc, folder, block.group(1), block.group(2))
        report_faults(block, found)
    if jobs != text.count("```toml\n"):
        faults.append(f"{page}: error: a block does not begin with the name of its file")
    for row in ROW.finditer(text):
        name, *shown, rate, batch = row.groups()
        report = reports.get(name)
        if report is None:
            report_faults(row, [f"{name} is no job of the page that lmc accepts"])
            continue
        compute = 6 * report["model"]["parameters"] * report["job"]["tokens"]
        true = (compute, 0.3118 * compute**-0.1250, 0.2920 * compute**0.3271)
        lr = re.search(r"^lr = (\S+)", (folder / name).read_text(encoding="utf-8"), re.MULTILINE).group(1)
        pairs = [*zip(map(number, shown), true), (number(rate), float(lr)), (number(batch), report["batch"]["tokens_per_step"])]
        report_faults(row, [f"{name}: the row says {a:g}, and it is {b:.3g}" for a, b in pairs if not near(a, b, ROUNDED)])
    print("\n".join(faults) or f"{jobs} jobs, {len(list(ROW.finditer(text)))} rows: all as lmc says")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(pathlib.Path, sys.argv[2:])))
