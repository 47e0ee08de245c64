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
config.environment["PATH"] = os.pathsep.join(
    [config.lmc_tools, config.llvm_tools, os.environ["PATH"]])
# What some tests need and not every machine has: they are "unsupported" there.
if config.lmc_nvrtc and not config.lmc_nvrtc.endswith("NOTFOUND"):
    config.available_features.add("nvrtc")
config.environment["PATH"] += os.pathsep + "/usr/local/cuda/bin"
if shutil.which("nvcc", path=config.environment["PATH"]):
    config.available_features.add("nvcc")
if shutil.which("chromium", path=config.environment["PATH"]):
    config.available_features.add("chromium")
config.substitutions.append(("%configs", config.lmc_source + "/models/configs"))
config.substitutions.append(("%python", sys.executable))
config.substitutions.append(("%root", config.lmc_source))
config.substitutions.append(("%llvm_include", os.path.join(os.path.dirname(config.llvm_tools),
                                                           "include")))
