"""Compares what `lmc explain --trace` and `lmc-run --trace` write: check-traces.py PREDICTED MEASURED"""

import json
import sys


def commands(path):
    """The events of commands by function and number, and of functions by name."""
    trace = json.load(open(path))
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    found, functions = {}, []
    for event in events:
        if event["cat"] == "function":
            functions.append(event["name"].split(" ")[0])
        else:
            key = event["args"]["function"], event["args"]["command"]
            found.setdefault(key, []).append(event)
    return found, functions, {event["pid"] for event in trace["traceEvents"]}


def what(event):
    """What must not differ between the two traces."""
    arguments = event["args"]
    return (event["name"], event["cat"], event["tid"], arguments["backward"],
            arguments.get("kernel"))


predicted, functions, process = commands(sys.argv[1])
measured, runs, measured_process = commands(sys.argv[2])
assert not process & measured_process, "the two traces cannot be opened together"
assert set(functions) == set(runs), (functions, runs)
assert predicted.keys() == measured.keys()
for key, [event] in predicted.items():
    for twin in measured[key]:
        assert what(twin) == what(event), (key, what(twin), what(event))
        arguments = twin["args"]
        assert abs(arguments["predicted_us"] - event["dur"]) <= 1e-9 * event["dur"], key
        assert abs(arguments["ratio"] * event["dur"] - twin["dur"]) <= 1e-6 * twin["dur"], key
print(f"traces: {len(predicted)} commands in both, {len(runs)} runs of {len(functions)} functions")
