// Checks a few thousand tokens of a token file before a run trains on it.
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
// has no more tokens. The places depend only on the length of the file. Returns a warning if all
// tokens of a place are equal (after an interrupted copy, zeros fill the rest of a file); if one
// token that ends a document directly follows another; if all ids are far below `vocabSize`; and if
// the file says that its documents end with another id than `endOfDocument` (data.end_of_document;
// -1: not given). Error: an id is negative or not below `vocabSize`, or the file cannot be read.
Result<std::vector<std::string>> sampleTokens(const TokenFile &file, uint64_t vocabSize,
                                              int32_t endOfDocument = -1);

} // namespace lmc
