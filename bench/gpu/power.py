"""Samples clock, power and memory of a GPU while something runs, and tells its phases apart.

By NVML every 10 ms, where its library is there, else by nvidia-smi every 100 ms. A program prints when its phases
began and ended, in seconds of CLOCK_MONOTONIC, as time.monotonic() counts on Linux: "phase heat 123.4567 124.5678".

Only Python's standard library, of 3.9 or later: this file runs on machines where nothing can be installed.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import statistics
import subprocess
import threading
import time

PHASE = re.compile(r"phase (\S.*?) ([\d.]+) ([\d.]+)")
INTERVAL_S = 0.01
SETTLES_S = 0.1  # the clock falls for so long after a GPU has got work


def gpu() -> str:
    """Returns the GPU that programs here see first, in the form that nvidia-smi takes."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0] or "0"


class Nvml:
    """The first GPU by NVML. The names and numbers are those of nvml.h."""

    CLOCK_SM, POWER_INSTANT = 1, 186  # NVML_CLOCK_SM, NVML_FI_DEV_POWER_INSTANT

    class Memory(ctypes.Structure):
        """nvmlMemory_v2_t, in which what the driver reserves is not in use."""
        _fields_ = [("version", ctypes.c_uint), ("total", ctypes.c_ulonglong), ("reserved", ctypes.c_ulonglong),
                    ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]

    class Field(ctypes.Structure):
        _fields_ = [("field", ctypes.c_uint), ("scope", ctypes.c_uint), ("timestamp", ctypes.c_longlong),
                    ("latency", ctypes.c_longlong), ("kind", ctypes.c_int), ("status", ctypes.c_int),
                    ("value", ctypes.c_ulonglong)]

    def __init__(self):
        """Raises OSError if there is no NVML, or it does not know the GPU."""
        self.library = ctypes.CDLL(os.environ.get("LMC_NVML") or "libnvidia-ml.so.1")
        self.device = ctypes.c_void_p()
        self.call("nvmlInit_v2")
        if gpu().startswith("GPU-"):
            self.call("nvmlDeviceGetHandleByUUID", gpu().encode(), ctypes.byref(self.device))
        else:
            self.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(int(gpu())), ctypes.byref(self.device))
        self.sample()

    def call(self, name: str, *arguments) -> None:
        code = getattr(self.library, name)(*arguments)
        if code != 0:
            raise OSError(f"{name}: {code}")

    def watts(self) -> float:
        """Returns the power of this moment where the GPU measures it, else the mean of the last second."""
        field = self.Field(field=self.POWER_INSTANT)
        try:
            self.call("nvmlDeviceGetFieldValues", self.device, 1, ctypes.byref(field))
            if field.status == 0:
                return (field.value & 0xffffffff) / 1e3
        except (OSError, AttributeError):
            pass
        power = ctypes.c_uint()
        self.call("nvmlDeviceGetPowerUsage", self.device, ctypes.byref(power))
        return power.value / 1e3

    def sample(self) -> tuple[float, float, float]:
        """Returns the SM clock in MHz, the power in W and the memory in use in MiB."""
        clock, memory = ctypes.c_uint(), self.Memory(version=ctypes.sizeof(self.Memory) | 2 << 24)
        self.call("nvmlDeviceGetClockInfo", self.device, self.CLOCK_SM, ctypes.byref(clock))
        self.call("nvmlDeviceGetMemoryInfo_v2", self.device, ctypes.byref(memory))
        return float(clock.value), self.watts(), memory.used / 2**20


class Clocks:
    """Samples (time, SM clock, power, memory in use) while the `with` block runs. Without a GPU it samples nothing."""

    def __init__(self, nvml: Nvml | None, smi: str | None):
        self.nvml, self.smi, self.samples = nvml, smi, []
        self.stop = threading.Event()
        self.reader = self.child = None

    def __enter__(self):
        if self.nvml:
            self.reader = threading.Thread(target=self.ask, daemon=True)
        elif self.smi:
            query = ["--query-gpu=clocks.sm,power.draw,memory.used", "--format=csv,noheader,nounits"]
            self.child = subprocess.Popen(
                [self.smi, *query, "-lms", "100", f"--id={gpu()}"], stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, text=True)
            self.reader = threading.Thread(target=self.read, daemon=True)
        if self.reader:
            self.reader.start()
        return self

    def ask(self) -> None:
        while not self.stop.wait(INTERVAL_S):
            try:
                self.samples.append((time.monotonic(), *self.nvml.sample()))
            except OSError:
                continue

    def read(self) -> None:
        for line in self.child.stdout:
            try:
                clock, power, memory = (float(part) for part in line.split(","))
            except ValueError:
                continue  # the GPU does not measure all of them: "[N/A]"
            if line.endswith("\n"):  # the end of the program may cut a line short
                self.samples.append((time.monotonic(), clock, power, memory))

    def __exit__(self, *_) -> None:
        self.stop.set()
        if self.child:
            self.child.kill()
            self.child.wait()
        if self.reader:
            self.reader.join()

    def figures(self) -> dict:
        """Returns the medians of the clock and the power over the samples with at least 80% of the most power, when
        the GPU was busy (a program may compile for a minute and compute for seconds), and the most memory that was in
        use (of all processes)."""
        if not self.samples:
            return {}
        most = max(sample[2] for sample in self.samples)
        busiest = [sample for sample in self.samples if sample[2] >= 0.8 * most]
        return {**medians(busiest), "used_mib": max(sample[3] for sample in self.samples)}

    def phase(self, began: float, ended: float) -> dict:
        """Returns the medians of the clock and the power in a phase, after the clock has settled if it is that long."""
        inside = [sample for sample in self.samples if began <= sample[0] <= ended]
        return medians([sample for sample in inside if sample[0] >= began + SETTLES_S] or inside)

    def groups(self, text: str) -> list[dict]:
        """Returns the figures of the phases that a program printed, in order: one group for each row that it printed
        behind them. Those of the phase "heat" begin with heat_."""
        made, is_open = [], False
        for line in text.splitlines():
            found = PHASE.fullmatch(line)
            if found and not is_open:
                made.append({})
            is_open = bool(found)
            if found:
                prefix = "heat_" if found[1] == "heat" else ""
                own = self.phase(float(found[2]), float(found[3]))
                made[-1].update({prefix + key: value for key, value in own.items()})
        return made


def clocks_of(on: bool, tell) -> Clocks:
    """Returns what samples the first GPU, or with `on` false nothing. Tells why it cannot do so by NVML."""
    if not on:
        return Clocks(None, None)
    try:
        return Clocks(Nvml(), None)
    except (OSError, AttributeError, ValueError) as error:
        tell(f"NVML does not run, so clocks and power are sampled by nvidia-smi: {error}")
        return Clocks(None, shutil.which("nvidia-smi"))


def medians(samples: list) -> dict:
    if not samples:
        return {}
    return {"sm_mhz": statistics.median(sample[1] for sample in samples),
            "watts": statistics.median(sample[2] for sample in samples)}
