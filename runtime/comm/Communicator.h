// The operations of a group of ranks.
//
// All ranks of a group call the same functions in the same order, with the same sizes. A rank's
// position in the group is 0 ... size() - 1. A call on host memory returns when its result is
// complete and its input may be changed. An Error says which rank failed, and the group is of no
// use afterwards.
//
// Sums are formed in the order of the positions: ((x_0 + x_1) + x_2) + ... If several ranks are on
// each of several nodes, those of a node are added up first, and then the nodes. Each addition is
// done in f64 for F64 and in f32 for F32, BF16 and F16; a BF16 or F16 sum of the ranks of a node,
// and one of nodes, is rounded at its end. So an element of the result depends on the ranks'
// elements alone, and not on how tensors are divided among calls.
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

  // Gathers: d = the x of all ranks, by position. x has `bytes` bytes, d has size() times as many.
  // x may be the part of d that belongs to this rank.
  virtual Result<void> allGather(const void *x, void *d, uint64_t bytes) = 0;

  // Sums and scatters: d = elements [position * elements, (position + 1) * elements) of the sum of
  // the ranks' x. x has size() * elements elements; it does not overlap d.
  virtual Result<void> reduceScatter(const void *x, void *d, uint64_t elements,
                                     plan::DType dtype) = 0;

  // d = the sum of the ranks' d, the same bits on all ranks.
  virtual Result<void> allReduce(void *d, uint64_t elements, plan::DType dtype) = 0;

  // data = the data of the rank at position `root`.
  virtual Result<void> broadcast(void *data, uint64_t bytes, int root) = 0;

  // Returns when all ranks have called it.
  virtual Result<void> barrier() = 0;

  // Runs a collective of a plan on `xBytes` bytes of x, and on d, which has `elements` elements. An
  // AllReduce has no x.
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
