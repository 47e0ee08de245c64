// The memory of this machine.
#pragma once

#include <cstdint>
#include <optional>

namespace lmc {

// Returns the bytes that this process can still get without swapping: MemAvailable of
// /proc/meminfo, or what is left of the limit of its control group (version 2) if that is less.
// nullopt: the system does not say.
std::optional<uint64_t> availableMemory();

} // namespace lmc
