// The trailer is the last 16 bytes of a plan file: the letters "LMCX", a version, and the XXH64
// hash of all bytes before the trailer, as little-endian numbers. The hash shows that the file,
// which contains machine code, has not changed since it was written.
#pragma once

#include <xxhash.h>

#include <cstdint>
#include <cstring>
#include <string>

namespace lmc {

inline constexpr size_t kPlanTrailerBytes = 16;
inline constexpr uint32_t kPlanTrailerVersion = 1;

// Appends the trailer to `plan`, a finished FlatBuffer.
inline void appendPlanTrailer(std::string &plan) {
  uint64_t hash = XXH64(plan.data(), plan.size(), 0);
  char trailer[kPlanTrailerBytes] = {'L', 'M', 'C', 'X'};
  for (int i = 0; i < 4; ++i)
    trailer[4 + i] = char(kPlanTrailerVersion >> (8 * i));
  for (int i = 0; i < 8; ++i)
    trailer[8 + i] = char(hash >> (8 * i));
  plan.append(trailer, sizeof(trailer));
}

enum class PlanTrailer { Good, Missing, Damaged };

// Checks the trailer of a plan file, whose `bytes` bytes are at `data`.
inline PlanTrailer checkPlanTrailer(const void *data, size_t bytes) {
  if (bytes < kPlanTrailerBytes)
    return PlanTrailer::Missing;
  const auto *at = static_cast<const unsigned char *>(data) + bytes - kPlanTrailerBytes;
  uint32_t version = 0;
  uint64_t hash = 0;
  for (int i = 0; i < 4; ++i)
    version |= uint32_t(at[4 + i]) << (8 * i);
  for (int i = 0; i < 8; ++i)
    hash |= uint64_t(at[8 + i]) << (8 * i);
  if (std::memcmp(at, "LMCX", 4) != 0 || version != kPlanTrailerVersion)
    return PlanTrailer::Missing;
  return hash == XXH64(data, bytes - kPlanTrailerBytes, 0) ? PlanTrailer::Good
                                                           : PlanTrailer::Damaged;
}

} // namespace lmc
