"""Checks what `lmc explain` writes: check-explain.py REPORT.json PAGE.html TRACE.json explain.md"""

import json
import re
import sys
import xml.etree.ElementTree as ElementTree

report_file, page_file, trace_file, reference = sys.argv[1:]


def check_keys():
    """Every `a.b[].c` of the reference's tables is in the report of a plan for the CPU, unless it
    needs a GPU, several ranks or measured times."""
    report = json.load(open(report_file))
    names = []
    for line in open(reference):
        if line.startswith("| `") and not re.search(r"\| (CUDA|--measured|several ranks) only", line):
            names += re.findall(r"`([^`]+)`", line.split("|")[1])
    for name in names:
        values = [report]
        for part in name.split("."):
            key, is_list = part.removesuffix("[]"), part.endswith("[]")
            for value in values:
                assert key in value, f"{name}: no '{key}' in the report"
            values = [value[key] for value in values]
            if is_list:
                values = [item for value in values for item in value]
    print(f"keys: {len(names)} documented, all there")
    memory = report["memory"]
    assert sum(memory["by_category"].values()) == memory["peak_bytes"]
    for function in memory["functions"]:
        live = [sum(at) for at in zip(*function["live_bytes"].values())]
        assert max(live, default=0) == function["peak_bytes"], function["name"]
    cost = report["cost"]
    step = sum(f["seconds"] * f["runs_per_step"] for f in cost["functions"])
    assert abs(step - cost["step_seconds"]) < 1e-9 * step
    assert abs(sum(cost["seconds_by_bound"].values()) - step) < 1e-9 * step


def check_page():
    text = open(page_file).read()
    for outside in ("http:", "https:", "src=", "href=", "url(", "@import", "<script"):
        found = text.replace("http://www.w3.org/1999/xhtml", "").find(outside)
        assert found < 0, f"the page has {outside}"
    elements = list(ElementTree.fromstring(text).iter())
    drawings = [e for e in elements if e.tag.endswith("}svg")]
    print(f"page: {len(elements)} elements, {len(drawings)} drawings")
    for drawing in drawings:
        assert len(list(drawing.iter())) > 20, "an empty drawing"


def check_trace():
    events = json.load(open(trace_file))["traceEvents"]
    at, streams, commands = 0.0, {}, 0
    for event in events:
        if event["ph"] == "M":
            continue
        assert event["ts"] >= at, "time goes back"
        at = event["ts"]
        if event["ph"] == "C":
            assert all(value > 0 for value in event["args"].values())
        elif event["tid"] > 0:
            assert event["dur"] > 0
            assert event["ts"] >= streams.get(event["tid"], 0.0) - 1e-6, "commands overlap"
            streams[event["tid"]] = event["ts"] + event["dur"]
            commands += 1
    print(f"trace: {commands} commands on {len(streams)} stream(s)")


check_keys()
check_page()
check_trace()
