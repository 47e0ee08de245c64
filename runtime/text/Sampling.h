// Chooses the next token from the logits of a model.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace lmc {

struct SamplingOptions {
  double temperature = 0; // divisor of the logits; 0: takes the most probable token
  double topP = 1;        // draws from the smallest set of tokens with this probability
};

// Returns a number in [0, 1): the upper 53 bits of the XXH64 of `place` with the seed, x 2^-53.
double uniformAt(uint64_t seed, std::span<const uint64_t> place);

// Returns the id of a token, given the logits [vocab]; nullopt if a logit is NaN or infinite. At
// temperature 0 it is the first id with the largest logit. Otherwise the random number `uniform`,
// in [0, 1), selects the id from softmax(logits / temperature), restricted by topP.
std::optional<uint32_t> chooseToken(std::span<const float> logits, const SamplingOptions &options,
                                    double uniform);

} // namespace lmc
