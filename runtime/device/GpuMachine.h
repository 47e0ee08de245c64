// Describes a machine's support for plans for GPUs, for `lmc-run --devices`.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace lmc {

// Returns what lmc-run finds without a plan. If one part fails, the others are still found:
//   cuda_driver   the newest CUDA that the driver supports, "13.0"; absent without a driver
//   devices       of each GPU: index, name, uuid, compute_capability ("9.0"), multiprocessors,
//                 memory_bytes, free_bytes; and memory, which says how 64 MiB went to the GPU and
//                 back: bytes, seconds, ok (all came back as they went)
//   libraries     cublaslt and nccl: version and file, or error
//   problems      what keeps plans for one GPU from running, one text each
// Libraries are opened as a run opens them, and may take memory of the GPU until the process ends.
nlohmann::ordered_json describeGpus();

} // namespace lmc
