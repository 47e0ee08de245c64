// The operations of a group of ranks.
//
// All ranks of a group must call the same functions in the same order, with the same sizes. A
// rank's position in the group is 0 ... size() - 1. All data is in host memory. A call returns when
// its result is complete. An Error says which rank failed; afterwards the group must not be used.
//
// Sums are formed in the order of the positions: ((x_0 + x_1) + x_2) + ... If several nodes have
// several ranks each, each node is summed first, and then the nodes' sums. F64 is added in f64,
// other dtypes in f32. A BF16 or F16 sum is rounded on each node, and again over all nodes. So an
// element of the result depends only on the ranks' elements, not on how tensors are divided among
// calls.
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

  // Sets d to the x of all ranks, in the order of their positions. Each x has `bytes` bytes. x may
  // be this rank's part of d.
  virtual Result<void> allGather(const void *x, void *d, uint64_t bytes) = 0;

  // Sums x, which has size() * elements elements, over all ranks. Sets d to this rank's part of the
  // sum: elements [position * elements, (position + 1) * elements). x must not overlap d.
  virtual Result<void> reduceScatter(const void *x, void *d, uint64_t elements,
                                     plan::DType dtype) = 0;

  // Replaces d by the sum of all ranks' d. The result has the same bits on all ranks.
  virtual Result<void> allReduce(void *d, uint64_t elements, plan::DType dtype) = 0;

  // Copies `data` of the rank at position `root` to `data` of all other ranks.
  virtual Result<void> broadcast(void *data, uint64_t bytes, int root) = 0;

  // Returns when all ranks have called it.
  virtual Result<void> barrier() = 0;

  // Runs a collective of a plan. d has `elements` elements. An AllReduce does not use x.
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
