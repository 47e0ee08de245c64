// Describes the GPUs of a machine, for `lmc-run --devices`.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace lmc {

// Returns an object with these members:
//   cuda_driver   the newest CUDA version that the driver supports, "13.0"; absent without a driver
//   devices       one object per GPU: index, name, uuid, compute_capability ("9.0"),
//                 multiprocessors, memory_bytes, free_bytes and memory. The object `memory`
//                 describes a copy to the GPU and back: `bytes`, `seconds` and `ok`, which is true
//                 if the bytes that came back are equal. `memory` is absent if the copy failed.
//   libraries     cublaslt and nccl: version and file, or error
//   problems      the reasons why a plan for one GPU would not run
// The opened libraries may take memory of the GPU until the process ends.
nlohmann::ordered_json describeGpus();

} // namespace lmc
