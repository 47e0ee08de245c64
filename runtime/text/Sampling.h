// Chooses the next token from the logits that a model gives.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace lmc {

struct SamplingOptions {
  double temperature = 0; // divides the logits; 0: the most likely token is taken
  double topP = 1;        // a token is drawn from the fewest that have at least this probability
};

// Returns a number in [0, 1) that depends on nothing but the arguments: the upper 53 bits of the
// XXH64 of `place` with the seed.
double uniformAt(uint64_t seed, std::span<const uint64_t> place);

// Returns the index of a token, `logits` being [vocab]; nullopt if one of them is NaN or infinite.
// Without a temperature that is the largest, and the first of several. With one, it is drawn by
// `uniform`, in [0, 1), from softmax(logits / temperature), cut off as `topP` says.
std::optional<uint32_t> chooseToken(std::span<const float> logits, const SamplingOptions &options,
                                    double uniform);

} // namespace lmc
