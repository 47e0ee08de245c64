// Matrix products, as the stand-in for cuBLASLt asks for them.
//
// Every algorithm adds the terms of a sum in another order, so that a program that runs another
// algorithm than the one it has chosen gets other bits.
#pragma once

#include "test/hostdriver/Driver.h"

namespace lmc::hostdriver {

// An algorithm cuts k into pieces, adds the terms of each piece in order, and then adds the sums of
// the pieces in order.
struct Algorithm {
  // At most one of the two is set. `depth` is the number of terms of a piece. `split` is the number
  // of pieces, which several thread blocks compute, so that their sums meet in a workspace.
  uint32_t depth, split;
  // The sums of pieces are rounded to the type of d before they are added.
  bool roundsPieces;
  uint32_t scheme; // cublasLtReductionScheme_t

  // Returns the bytes of workspace that a product of m x n sums needs.
  uint64_t workspace(uint64_t m, uint64_t n, uint64_t width) const { return split * m * n * width; }
};

inline constexpr Algorithm kAlgorithms[] = {
    {0, 0, false, 0}, {0, 2, false, 2}, {16, 0, false, 0}, {0, 3, false, 2}, {8, 0, false, 0},
    {0, 2, true, 1},  {0, 2, true, 4},  {32, 0, false, 0}, {0, 4, false, 2}, {4, 0, false, 0},
};
inline constexpr uint32_t kAlgorithmCount = sizeof(kAlgorithms) / sizeof(kAlgorithms[0]);

// Appends the product to the stream, or to the graph that the stream is captured into. Fails if the
// plan has no such product.
LMC_HOST_EXPORT void submitProduct(CUstream stream, const PlainProduct &product,
                                   uint32_t algorithm);

} // namespace lmc::hostdriver
