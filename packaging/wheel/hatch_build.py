"""Adds the installed programs and libraries to the wheel.

LMC_TREE is the prefix of a `cmake --install`, LMC_TAG the wheel's platform ("manylinux_2_36_x86_64"),
LMC_VERSION its version. Symbolic links are not followed; the tree has none.
"""
import os

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class InstalledTree(BuildHookInterface):
    def initialize(self, version, build_data):
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{os.environ['LMC_TAG']}"
        build_data["force_include"][os.environ["LMC_TREE"]] = "lmc"
