#include "runtime/data/SampleTokens.h"

#include "runtime/data/Separators.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <random>

namespace lmc {

// Returns the index of the first token of each place, ascending. `size` must exceed kSampledTokens.
static std::vector<uint64_t> placesOf(uint64_t size) {
  const uint64_t last = size - kTokensPerPlace;
  std::vector<uint64_t> places = {0, last};
  std::mt19937_64 engine(size);
  while (places.size() < kSamplePlaces)
    places.push_back(engine() % (last + 1));
  std::ranges::sort(places);
  return places;
}

// If the vocabulary or the sample is smaller than this, all ids may be small by chance.
constexpr uint64_t kLargeVocabulary = 1024, kTellingSample = 4096, kFarBelow = 8;

Result<std::vector<std::string>> sampleTokens(const TokenFile &file, uint64_t vocabSize,
                                              int32_t endOfDocument) {
  const uint64_t size = file.size();
  const bool isWhole = size <= kSampledTokens;
  const std::vector<uint64_t> places = isWhole ? std::vector<uint64_t>{0} : placesOf(size);
  const uint64_t length = isWhole ? size : kTokensPerPlace;
  std::vector<int32_t> tokens(length);
  std::vector<std::string> warnings;
  const int32_t own = file.endOfDocument();
  SeparatorCount separators(own >= 0 ? own : endOfDocument);
  int32_t largest = 0;
  for (uint64_t place : places) {
    LMC_TRY(file.read(place, length, tokens.data()));
    for (uint64_t i = 0; i < length; ++i)
      if (tokens[i] < 0 || static_cast<uint64_t>(tokens[i]) >= vocabSize)
        return file.badId(place + i, fmt::format("{} (model.vocab_size)", vocabSize));
    separators.add(place, tokens);
    largest = std::max(largest, std::ranges::max(tokens));
    const bool isSame = std::ranges::adjacent_find(tokens, std::not_equal_to<>()) == tokens.end();
    if (isSame && length >= kTokensPerPlace && warnings.empty())
      warnings.push_back(
          fmt::format("{}: the tokens {} to {} all have the id {}; if the text is not "
                      "so, the file is damaged: pack or copy it again",
                      file.path(), place, place + length - 1, tokens.front()));
  }
  if (std::string fault = separators.faultOf(file.path()); !fault.empty())
    warnings.push_back(std::move(fault));
  if (own >= 0 && endOfDocument >= 0 && own != endOfDocument)
    warnings.push_back(fmt::format("{}: it says that its documents end with id {}, and "
                                   "data.end_of_document is {}; leave the key out",
                                   file.path(), own, endOfDocument));
  const uint64_t read = places.size() * length;
  if (warnings.empty() && file.vocabulary() == 0 && vocabSize >= kLargeVocabulary &&
      read >= kTellingSample && static_cast<uint64_t>(largest) < vocabSize / kFarBelow)
    warnings.push_back(fmt::format("{}: the largest id of {} sampled tokens is {}, and "
                                   "model.vocab_size is {}; is this the file of another tokenizer?",
                                   file.path(), read, largest, vocabSize));
  return warnings;
}

} // namespace lmc
