#include "corpus/tokenizer/models/BpeTrainer.h"

#include "corpus/tokenizer/models/Model.h"
#include "test/Draws.h"

#include <nlohmann/json.hpp>

#include <map>
#include <random>

using namespace lmc;
using namespace lmc::test;

namespace {

using Pair = std::pair<std::string, std::string>;

// Trains by counting all pairs again before each merge. The words have lower-case letters only,
// whose ids are in the order of the alphabet.
std::vector<Pair> mergesOf(const std::map<std::string, int> &counts, size_t most) {
  std::vector<std::pair<std::vector<std::string>, int>> words;
  std::map<std::string, size_t> ids;
  for (const auto &[word, count] : counts) {
    words.push_back({{}, count});
    for (char letter : word)
      words.back().first.emplace_back(1, letter);
  }
  for (char letter = 'a'; letter <= 'z'; ++letter)
    ids.emplace(std::string(1, letter), ids.size());
  std::vector<Pair> merges;
  while (merges.size() < most) {
    std::map<std::pair<size_t, size_t>, std::pair<int, Pair>> pairs;
    for (const auto &[symbols, count] : words)
      for (size_t i = 0; i + 1 < symbols.size(); ++i) {
        auto &[total, pair] = pairs[{ids.at(symbols[i]), ids.at(symbols[i + 1])}];
        total += count;
        pair = {symbols[i], symbols[i + 1]};
      }
    const std::pair<int, Pair> *best = nullptr;
    for (const auto &[key, entry] : pairs)
      if (!best || entry.first > best->first)
        best = &entry;
    if (!best)
      break;
    const Pair pair = best->second;
    merges.push_back(pair);
    ids.emplace(pair.first + pair.second, ids.size());
    for (auto &[symbols, count] : words)
      for (size_t i = 0; i + 1 < symbols.size(); ++i)
        if (symbols[i] == pair.first && symbols[i + 1] == pair.second) {
          symbols[i] += symbols[i + 1];
          symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(i) + 1);
        }
  }
  return merges;
}

TEST(BpeTrainer, MergesTheMostFrequentPairsOfDrawnWords) {
  std::mt19937 random(1);
  for (int64_t draws = drawCount(40), i = 0; i < draws; ++i) {
    BpeTrainer trainer;
    std::map<std::string, int> counts;
    for (int n = 1 + random() % 30; n > 0; --n) {
      std::string word(1 + random() % 20, 'a');
      for (char &letter : word)
        letter = static_cast<char>('a' + random() % 3);
      for (int times = 1 + random() % 4; times > 0; --times, ++counts[word])
        ASSERT_TRUE(trainer.add(word));
    }
    const uint32_t most = 1 + random() % 40;
    auto trained = trainer.train(257 + most, "<end>");
    ASSERT_TRUE(trained) << trained.error().message;
    std::vector<Pair> merges = nlohmann::json::parse(trained->json)["model"]["merges"];
    // Two pairs can make the same token; the naive way does not try to make others instead.
    const std::vector<Pair> expected = mergesOf(counts, merges.size());
    EXPECT_EQ(merges, expected);
    EXPECT_LE(trained->tokens, 257 + most);
  }
}

} // namespace
