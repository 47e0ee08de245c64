"""Measured beside expected: compares the rows of sections with the bets of expected.json, which expected.py wrote
before anything was measured.

Only Python's standard library, of 3.9 or later: this file runs on machines where nothing can be installed.
"""

from __future__ import annotations

import datetime
import json
import math
import re

WORST = 5


def load(folder) -> dict:
    """Returns the bets of a pack; none if it has no expected.json."""
    path = folder / "expected.json"
    return json.loads(path.read_text()) if path.exists() else {"specs": {}, "bets": []}


def spec_of(expected: dict, gpu: str | None) -> str | None:
    """Returns the name of the spec that has predictions for this GPU, as nvidia-smi names it."""
    return next((name for name, facts in expected["specs"].items() if facts["gpu"] == gpu), None)


def row_of(bet: dict, rows: list[dict]) -> dict | None:
    """Returns the row that a bet is about. If several variants have a row, it is that of the fastest right one."""
    where = {"item": bet["item"], **bet.get("where", {})}
    fitting = [row for row in rows if row.get(bet["figure"]) is not None and row.get("right") is not False
               and all(row.get(key) == value for key, value in where.items())]
    return min(fitting, key=lambda row: row.get("ms", 0.0)) if fitting else None


def outside(measured, low, high) -> float:
    """Returns how far a figure is outside of its range, as the ratio to the nearer end: 1 inside, infinity for a figure
    that has no ratio, such as one that must be 0, or yes."""
    if isinstance(low, bool):
        return 1.0 if measured == low else math.inf
    if low <= measured <= high:
        return 1.0
    if not measured == measured or low == high == 0:
        return math.inf
    near, far = (high, measured) if measured > high else (measured, low)
    return far / near if near > 0 else math.inf


def off(measured, prediction, low) -> float:
    """Returns how far a figure is from its prediction: the absolute logarithm of their ratio. One whose range begins
    at 0 is an error or a time that is only bounded: less than predicted is not off."""
    if measured == prediction or (low == 0 and 0 <= measured <= prediction):
        return 0.0
    try:
        return abs(math.log(measured / prediction))
    except (ValueError, ZeroDivisionError):
        return math.inf


def compared(expected: dict, section: str, rows: list[dict], gpu: str | None) -> list[dict]:
    """Returns the bets on what the section measured, each with the measured figure. Of a GPU without predictions only
    those that hold for every GPU."""
    spec, made = spec_of(expected, gpu), []
    for bet in expected["bets"]:
        if bet["section"] != section or "by" not in bet:
            continue
        value, row = bet["by"].get("any") or bet["by"].get(spec), row_of(bet, rows)
        if value is None or row is None:
            continue
        measured = row[bet["figure"]]
        made.append({"section": section, "item": bet["item"], **bet.get("where", {}), "figure": bet["figure"],
                     "measured": measured, **value, "rule": bet["rule"],
                     "outside": outside(measured, value["low"], value["high"]),
                     "off": off(measured, value["prediction"], value["low"])})
    return made


def worst(every: list[dict], count: int = WORST) -> list[dict]:
    """Returns the bets that were lost by the most, at most one for each item (and kernel): those furthest outside of
    their range, by the ratio to its nearer end; then those furthest from the prediction."""
    chosen: dict[tuple, dict] = {}
    for each in sorted(every, key=lambda each: (-each["outside"], -each["off"])):
        chosen.setdefault((each["section"], each["item"], each.get("kernel")), each)
    return list(chosen.values())[:count]


def show(value) -> str:
    if isinstance(value, str):  # "inf", where plain() has written it
        return value
    if isinstance(value, bool):
        return "yes" if value else "NO"
    return f"{value:.4g}" if isinstance(value, float) and abs(value) < 1e4 else f"{value:.0f}"


def verdict(each: dict) -> str:
    ratio = float(each["outside"])  # text, where plain() has written it
    if ratio == 1:
        return "inside"
    if ratio == math.inf:
        return "OUTSIDE"
    return f"OUTSIDE, {ratio:.2f} times " + ("above" if each["measured"] > each["high"] else "below")


def table(every: list[dict], with_section: bool = False) -> list[str]:
    """Returns the lines of a table of measured beside expected."""
    if not every:
        return []
    lines = ["| " + ("section | " if with_section else "") + "item | figure | measured | expected | range | |",
             "|---" * (6 + with_section) + "|"]
    for each in every:
        item = each["item"] + (f", {each['kernel']}" if "kernel" in each else "")
        lines.append("| " + (f"{each['section']} | " if with_section else "") +
                     f"{item} | {each['figure']} | {show(each['measured'])} | {show(each['prediction'])} | "
                     f"{show(each['low'])} to {show(each['high'])} | {verdict(each)} |")
    return lines


def plain(value):
    """Returns `value` without numbers that JSON does not have."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


# ---- The hooks of session.py and run.


def compare(session, section: str, rows: list[dict]) -> list[dict]:
    """Returns the section's bets beside what it measured, and keeps them for summarize(). None in a dry run."""
    if session.dry:
        return []
    made = compared(load(session.folder), section, rows, session.machine["name"])
    session.__dict__.setdefault("compared", {})[section] = made
    return made


def section_markdown(every: list[dict]) -> list[str]:
    return ["", "Measured beside expected (`expected.json`):", "", *table(every)] if every else []


def summarize(session) -> None:
    """Prints the bets that were lost by the most over all sections that ran, and writes them to
    gpu-summary-DEVICE-DATE.json and .md."""
    if session.dry:
        print("DRY RUN: nothing was measured, so nothing is compared with what was expected")
        return
    made, machine = session.__dict__.get("compared", {}), session.machine
    if not made:
        return
    expected, now = load(session.folder), datetime.datetime.now(datetime.timezone.utc)
    spec = spec_of(expected, machine["name"])
    notes = []
    if not expected["bets"]:
        notes.append("this folder has no expected.json: nothing is compared")
    elif spec is None:
        known = ", ".join(facts["gpu"] for facts in expected["specs"].values())
        notes.append(f"there are no predictions for the {machine['name']} (but for {known}): only what holds for every "
                     "GPU is compared, such as planned memory")
    every = [each for section in made.values() for each in section]
    lost = worst(every)
    sections = {}
    for section, bets in made.items():
        wanted = sum(1 for bet in expected["bets"] if bet["section"] == section and
                     ("any" in bet.get("by", {}) or spec in bet.get("by", {})))
        inside = sum(1 for each in bets if each["outside"] == 1)
        sections[section] = {"compared": len(bets), "inside": inside, "outside": len(bets) - inside,
                             "not_measured": wanted - len(bets)}
    facts = {"section": "summary", "date": now.isoformat(timespec="seconds"), "machine": machine, "spec": spec,
             "notes": notes, "sections": sections, "worst": lost,
             "outside": [each for each in every if each["outside"] > 1]}
    lines = ["# Measured beside expected", "",
             f"{machine['name']}, driver {machine['driver_version']}, power cap {machine['power.limit']}; "
             f"{facts['date']}; lmc {machine['commit']}; predictions of the spec {spec or 'of no GPU like this'}.", "",
             *(f"* {note}" for note in notes), *[""] * bool(notes),
             "| section | compared | inside | outside | not measured |", "|---|---|---|---|---|",
             *("| " + " | ".join([section, *map(str, counts.values())]) + " |" for section, counts in sections.items())]
    if lost:
        lines += ["", f"The worst {len(lost)}:", "", *table(lost, with_section=True)]
    device = re.sub("[^a-z0-9]+", "-", (machine["name"] or "").lower()).strip("-")
    name = f"gpu-summary-{device}-{now:%Y-%m-%d-%H%M%S}"
    session.write(f"{name}.json", json.dumps(plain(facts), indent=1) + "\n")
    path = session.write(f"{name}.md", "\n".join(lines) + "\n")
    print("== expected")
    for note in notes:
        print(f"  {note}")
    for each in lost:
        item = each["item"] + (f", {each['kernel']}" if "kernel" in each else "")
        print(f"  {each['section']}: {item}: {each['figure']} {show(each['measured'])}, "
              f"expected {show(each['prediction'])} ({show(each['low'])} to {show(each['high'])}): {verdict(each)}")
    print(f"  -> {path}", flush=True)
