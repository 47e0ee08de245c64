# lit configuration: .mlir and .test files below test/, run with the programs just built.
import os
import shutil
import sys

import lit.formats

config.name = "lmc"
config.test_format = lit.formats.ShTest(True)
config.suffixes = [".mlir", ".test"]
config.test_source_root = os.path.dirname(__file__)
config.excludes = ["parity", "data", "Inputs"]
# Tests take the fixed implementations of matrix products, so that they neither time them nor use
# the choices in the user's cache.
config.environment["LMC_GEMM"] = "default"
# How many drawn cases are tried, as a multiple of what a test names.
if "LMC_FUZZ" in os.environ:
    config.environment["LMC_FUZZ"] = os.environ["LMC_FUZZ"]
config.environment["PATH"] = os.pathsep.join(
    [config.lmc_tools, config.llvm_tools, os.environ["PATH"]])
# What some tests need and not every machine has: they are "unsupported" there.
if config.lmc_nvrtc and not config.lmc_nvrtc.endswith("NOTFOUND"):
    config.available_features.add("nvrtc")
config.environment["PATH"] += os.pathsep + "/usr/local/cuda/bin"
if shutil.which("nvcc", path=config.environment["PATH"]):
    config.available_features.add("nvcc")
# The headless shell draws the same pages as Chromium, is smaller and starts faster. A snap may not read the pages of tests.
browsers = [name for name in ("chromium-headless-shell", "chromium")
            if os.path.basename(os.path.realpath(
                shutil.which(name, path=config.environment["PATH"]) or "snap")) != "snap"]
if browsers:
    config.available_features.add("chromium")
    config.substitutions.append(("%chromium", browsers[0]))
else:
    lit_config.note("tests that need a browser are skipped: neither chromium-headless-shell nor "
                    "chromium is there (on Debian, ./dev setup installs it)")
config.substitutions.append(("%configs", config.lmc_source + "/models/configs"))
config.substitutions.append(("%python", sys.executable))
config.substitutions.append(("%root", config.lmc_source))
config.substitutions.append(("%build", os.path.dirname(config.test_exec_root)))
config.substitutions.append(("%llvm_include", os.path.join(os.path.dirname(config.llvm_tools),
                                                           "include")))
