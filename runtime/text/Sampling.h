// Chooses the next token from the logits of a model.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace lmc {

struct SamplingOptions {
  double temperature = 0; // divisor of the logits; 0: the most probable token is taken
  double topP = 1;        // a token is drawn from the smallest set with this probability
};

// Returns a number in [0, 1) that depends only on the arguments: the upper 53 bits of the XXH64 of
// `place` with the seed.
double uniformAt(uint64_t seed, std::span<const uint64_t> place);

// Returns the index of a token for the logits [vocab]; nullopt if one of them is NaN or infinite.
// If the temperature is 0, it is the index of the largest logit, the first of several. Otherwise
// `uniform`, in [0, 1), draws it from softmax(logits / temperature), restricted by topP.
std::optional<uint32_t> chooseToken(std::span<const float> logits, const SamplingOptions &options,
                                    double uniform);

} // namespace lmc
