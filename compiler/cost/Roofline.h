// Estimates the time of one command on a device: the launch latency, plus the larger of the time of
// the arithmetic and the time of the memory traffic. Equal work and specs give bitwise equal times.
#pragma once

#include "compiler/cost/Collectives.h"
#include "compiler/cost/DeviceSpec.h"

#include <compare>
#include <cstdint>
#include <string_view>
#include <variant>

namespace lmc::cost {

// What limits the speed of a command.
enum class Bound {
  MatrixUnits, // tensor cores, or the CPU's multiply-adds in a matrix product
  MemoryBandwidth,
  VectorUnits,
  Launch, // launch latency: the command is too small
  Links,  // the links between devices
};
inline constexpr size_t kNumBounds = 5;

// Returns "matrix units", "memory bandwidth", "vector units", "launch latency" or "links".
std::string_view boundName(Bound bound);

// The matrix product d[m,n] = a[m,k] b[k,n], or d += a b if `accumulate`; or `batch` such products.
struct GemmWork {
  int64_t m = 0, n = 0, k = 0;
  DataType input = DataType::BF16;
  DataType output = DataType::BF16;
  bool accumulate = false;
  bool residual = false; // true if a matrix as large as d is also read and added
  // The first row length or row pitch of a, b or d that is not a multiple of 16 bytes, in elements;
  // 0 if there is none.
  int64_t unalignedRow = 0;
  int64_t batch = 1;
  bool experts = false; // true: products of experts; `batch` is the number of experts with rows
  bool uneven = false;  // true if m is the mean over products with different numbers of rows
  // True if the factors are 8-bit floats. `input` is then the dtype of a CPU's product.
  bool eightBits = false;
  int64_t zeros = 0;    // number of matrices d that are set to zero: their experts have no rows
};

// Causal attention or its gradient, with the fields of the commands in ground/plan/plan.fbs.
struct AttentionWork {
  int64_t batch = 0, seq = 0, heads = 0, kvHeads = 0, headDim = 0;
  int64_t window = 0; // number of keys that a query sees; 0: no window
  DataType dtype = DataType::BF16;
  bool backward = false;
  bool documents = false; // true if there is a document mask
  bool rope = false;      // true if the gradients of q and k are also rotated back
  // The first row pitch that is not a multiple of 16 bytes, in elements; 0 if there is none.
  int64_t unalignedPitch = 0;

  auto operator<=>(const AttentionWork &) const = default;
};

// A generated kernel or a copy. Its traffic is known exactly.
struct KernelWork {
  double readBytes = 0, writtenBytes = 0;
  double flops = 0; // a function such as exp counts as one operation
};

// A matrix product followed by the SwiGLU of its halves or by the gradient of SwiGLU.
struct SwigluWork {
  GemmWork product;
  KernelWork rows;       // the kernel that follows the product, if a library computes the product
  double wholeBytes = 0; // bytes that one kernel moves if it computes the product and the SwiGLU
  bool backward = false; // true for the gradient
};

// A scatter-add: d[ids[t], :] += x[t, :] for each row t of x. If not `accumulate`, all of d is set
// to zero first.
struct ScatterWork {
  int64_t rows = 0, columns = 0, vocabulary = 0;
  int64_t inputWidth = 2, outputWidth = 4; // bytes per element of x and of d
  bool accumulate = false;
};

// A collective of `group`. The tensor has `bytes` bytes after an all-gather, before a
// reduce-scatter, or in an all-reduce.
struct CollectiveWork {
  bool isAllReduce = true; // false: an all-gather or a reduce-scatter
  double bytes = 0;
  Group group;
};

using Work =
    std::variant<GemmWork, AttentionWork, KernelWork, ScatterWork, CollectiveWork, SwigluWork>;

// Returns true if `work` is a matrix product, alone or in attention or SwiGLU.
inline bool isMatrixWork(const Work &work) {
  return std::holds_alternative<GemmWork>(work) || std::holds_alternative<AttentionWork>(work) ||
         std::holds_alternative<SwigluWork>(work);
}

struct Estimate {
  double seconds = 0;
  Bound bound = Bound::Launch;
  double flops = 0; // arithmetic operations; attention counts only scores that its mask leaves
  double bytes = 0; // bytes read from and written to device memory
};

Estimate estimate(const GemmWork &work, const DeviceSpec &spec);
Estimate estimate(const AttentionWork &work, const DeviceSpec &spec);
Estimate estimate(const KernelWork &work, const DeviceSpec &spec);
Estimate estimate(const ScatterWork &work, const DeviceSpec &spec);
// Returns the estimate of a library's product and the kernel that follows it, together.
Estimate estimate(const SwigluWork &work, const DeviceSpec &spec);
// Uses the formulas of Collectives.h. Estimate::bytes is the number of bytes that one rank sends.
Estimate estimate(const CollectiveWork &work, const DeviceSpec &spec);
Estimate estimate(const Work &work, const DeviceSpec &spec);

// Returns the estimate of a command that runs `kernels` one after the other. Its `bound` is that of
// the longest kernel.
Estimate sumOf(const std::vector<Estimate> &kernels);

// Returns the index in spec.attention of the entry that estimate(AttentionWork) uses. An entry of
// the same dtype is preferred, then the one with the nearest head dimension.
size_t attentionModelOf(const AttentionWork &work, const DeviceSpec &spec);

// Returns the estimate of a command that computes on `unit` for `computeSeconds` and moves `bytes`
// bytes at the same time.
Estimate roofline(double computeSeconds, Bound unit, double flops, double bytes,
                  const DeviceSpec &spec);

// Returns the number of visible (query, key) pairs in one head of one sequence. Query i sees min(i
// + 1, window) keys; with a window of 0, it sees i + 1 keys.
double visiblePairs(int64_t seq, int64_t window);

} // namespace lmc::cost
