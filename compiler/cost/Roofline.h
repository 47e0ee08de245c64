// The time of one command on a device: the larger of the times of its arithmetic and of its memory
// traffic, plus the launch.
//
// The inputs are plain structs, so that passes can ask before a plan exists. The estimate is
// deterministic: the same work and spec give the same bits.
//
// Stable: the work structs, estimate() and Estimate.
#pragma once

#include "compiler/cost/DeviceSpec.h"

#include <cstdint>
#include <string_view>
#include <variant>

namespace lmc::cost {

// What limits the speed of a command.
enum class Bound {
  MatrixUnits, // tensor cores, or the CPU's multiply-adds in a matrix product
  MemoryBandwidth,
  VectorUnits,
  Launch, // too small to fill the device
};

// "matrix units", "memory bandwidth", "vector units", "launch latency"
std::string_view boundName(Bound bound);

// d[m,n] = a[m,k] b[k,n], or += with `accumulate`.
struct GemmWork {
  int64_t m = 0, n = 0, k = 0;
  DataType input = DataType::BF16;
  DataType output = DataType::BF16;
  bool accumulate = false;
};

// Causal attention or its gradient, as in runtime/plan/plan.fbs.
struct AttentionWork {
  int64_t batch = 0, seq = 0, heads = 0, kvHeads = 0, headDim = 0;
  int64_t window = 0; // 0: causal only
  DataType dtype = DataType::BF16;
  bool backward = false;
};

// A generated kernel or a copy: a command whose traffic is known exactly.
struct KernelWork {
  double readBytes = 0, writtenBytes = 0;
  double flops = 0; // a function such as exp counts one
};

// d[ids[t], :] += x[t, :]; all of d is zeroed first unless `accumulate`.
struct ScatterWork {
  int64_t rows = 0, columns = 0, vocabulary = 0;
  int64_t inputWidth = 2, outputWidth = 4; // bytes of an element of x and of d
  bool accumulate = false;
};

using Work = std::variant<GemmWork, AttentionWork, KernelWork, ScatterWork>;

// Returns true if `work` is a matrix product or attention, which consists of matrix products.
inline bool isMatrixWork(const Work &work) {
  return std::holds_alternative<GemmWork>(work) || std::holds_alternative<AttentionWork>(work);
}

struct Estimate {
  double seconds = 0;
  Bound bound = Bound::Launch;
  double flops = 0; // FLOP done; attention counts only pairs its mask leaves
  double bytes = 0; // bytes of device memory read and written
};

Estimate estimate(const GemmWork &work, const DeviceSpec &spec);
Estimate estimate(const AttentionWork &work, const DeviceSpec &spec);
Estimate estimate(const KernelWork &work, const DeviceSpec &spec);
Estimate estimate(const ScatterWork &work, const DeviceSpec &spec);
Estimate estimate(const Work &work, const DeviceSpec &spec);

// Pairs of a query and a key that it sees, in one head of one sequence: query i sees
// min(i + 1, window) keys.
double visiblePairs(int64_t seq, int64_t window);

// Bytes of an element.
int64_t elementWidth(DataType dtype);

} // namespace lmc::cost
