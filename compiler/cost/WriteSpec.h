// Writes device specs, for lmc-calibrate and for `lmc explain --measured=FILE -o SPEC.toml`.
#pragma once

#include "compiler/cost/DeviceSpec.h"

#include <map>
#include <string>

namespace lmc::cost {

// Comments for numbers and sections of a spec, keyed by "memory.bandwidth", "gemm.bf16", or
// "attention.0" for the first table of attention.
using SpecComments = std::map<std::string, std::string>;

// Returns the spec as TOML that parseDeviceSpec reads; numbers have six significant digits. `header`
// is the first lines of the file: complete comments, or "".
std::string deviceSpecToml(const DeviceSpec &spec, const std::string &header = "",
                           const SpecComments &comments = {});

} // namespace lmc::cost
