// The operations of a group of ranks.
//
// All ranks of a group must call the same functions in the same order, with the same sizes. A
// rank's position in the group is 0 ... size() - 1. All data is in host memory. A call returns when
// its result is complete. An Error says which rank failed; afterwards the group must not be used.
//
// Sums are formed in the order of the positions: ((x_0 + x_1) + x_2) + ... With several ranks on
// each of several nodes, each node is summed first, and then the sums of the nodes. F64 is added in
// f64, other dtypes in f32. A BF16 or F16 sum is rounded once per node, and once over the nodes.
#pragma once

#include "ground/support/Result.h"
#include "plan_generated.h"

#include <cstdint>

namespace lmc {

class Communicator {
public:
  virtual ~Communicator() = default;

  virtual int position() const = 0;
  virtual int size() const = 0;

  // Sets d to the x of all ranks, in the order of their positions. Each x has `bytes` bytes, and
  // may be this rank's part of d.
  virtual Result<void> allGather(const void *x, void *d, uint64_t bytes) = 0;

  // Sets d to elements [position * elements, (position + 1) * elements) of the sum of the ranks' x.
  // x has size() * elements elements, and must not overlap d.
  virtual Result<void> reduceScatter(const void *x, void *d, uint64_t elements,
                                     plan::DType dtype) = 0;

  // Sets d to the sum of the ranks' d, with the same bits on all ranks.
  virtual Result<void> allReduce(void *d, uint64_t elements, plan::DType dtype) = 0;

  // Sets `data` to that of the rank at position `root`.
  virtual Result<void> broadcast(void *data, uint64_t bytes, int root) = 0;

  // Returns when all ranks have called it.
  virtual Result<void> barrier() = 0;

  // Runs a collective of a plan. d has `elements` elements. An AllReduce has no x.
  Result<void> run(plan::CollectiveKind kind, const void *x, uint64_t xBytes, void *d,
                   uint64_t elements, plan::DType dtype) {
    switch (kind) {
    case plan::CollectiveKind::AllGather:
      return allGather(x, d, xBytes);
    case plan::CollectiveKind::ReduceScatter:
      return reduceScatter(x, d, elements, dtype);
    case plan::CollectiveKind::AllReduce:
      return allReduce(d, elements, dtype);
    }
    return Error{"a collective of an unknown kind"};
  }
};

} // namespace lmc
