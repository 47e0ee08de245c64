// Checks a few thousand tokens of a token file.
#pragma once

#include "runtime/data/TokenFile.h"

#include <cstdint>
#include <string>
#include <vector>

namespace lmc {

inline constexpr uint64_t kSamplePlaces = 8; // the start and the end of a file, and 6 random places
inline constexpr uint64_t kTokensPerPlace = 1024;
inline constexpr uint64_t kSampledTokens = kSamplePlaces * kTokensPerPlace;

// Reads kTokensPerPlace tokens at each of kSamplePlaces places of the file, or the whole file if it
// has no more tokens. The places depend only on the file's length. Returns warnings: all tokens at
// a place are equal; two end-of-document tokens are neighbours; all ids are far below `vocabSize`;
// the file's end-of-document id differs from `endOfDocument` (-1: not given). Error: an id is
// negative or at least `vocabSize`, or the file cannot be read.
Result<std::vector<std::string>> sampleTokens(const TokenFile &file, uint64_t vocabSize,
                                              int32_t endOfDocument = -1);

} // namespace lmc
