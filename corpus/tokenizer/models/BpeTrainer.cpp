#include "corpus/tokenizer/models/BpeTrainer.h"

#include "corpus/tokenizer/models/Model.h"
#include "corpus/tokenizer/unicode/Utf8.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <queue>
#include <set>
#include <vector>

namespace lmc {

using Json = nlohmann::ordered_json;

// The expression by which Llama 3 cuts words (github.com/meta-llama/llama3, llama/tokenizer.py).
static constexpr const char *kWords =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

BpeTrainer::BpeTrainer() {
  auto matcher = matchRegex(kWords);
  if (!matcher)
    std::abort(); // never happens, because kWords is a constant that compiles
  preTokenizer = makeSplit(std::move(*matcher), SplitBehavior::Isolated, false);
}

Result<void> BpeTrainer::add(std::string_view document) {
  if (document.empty())
    return {};
  Words found;
  found.views.push_back(document);
  LMC_TRY(preTokenizer(found, true));
  for (std::string_view word : found.views)
    ++words[std::string(word)];
  return {};
}

namespace {

// Trains byte pair encoding (Sennrich et al., "Neural Machine Translation of Rare Words with
// Subword Units", 2016). Among equally frequent pairs, merges the pair with the lowest ids first.
class Training {
public:
  using Pair = std::pair<uint32_t, uint32_t>;

  struct Word {
    std::vector<uint32_t> symbols;
    int64_t count;
  };

  explicit Training(std::vector<Word> given) : words(std::move(given)) {
    std::set<Pair> pairs;
    for (size_t i = 0; i < words.size(); ++i)
      for (size_t j = 0; j + 1 < words[i].symbols.size(); ++j)
        change({words[i].symbols[j], words[i].symbols[j + 1]}, i, 1, pairs);
    push(pairs);
  }

  std::optional<Pair> best() {
    while (!queue.empty()) {
      Entry top = queue.top();
      queue.pop();
      const int64_t now = counts[top.pair];
      if (now == top.count && now > 0)
        return top.pair;
      // The entry had an outdated count. An entry with the present count replaces it.
      if (now > 0 && now < top.count)
        queue.push({now, top.pair});
    }
    return std::nullopt;
  }

  // Replaces the pair by `merged` in all words.
  void merge(Pair pair, uint32_t merged) {
    std::vector<size_t> places = std::move(where[pair]);
    where.erase(pair);
    std::sort(places.begin(), places.end());
    places.erase(std::unique(places.begin(), places.end()), places.end());
    std::set<Pair> changed;
    for (size_t i : places) {
      std::vector<uint32_t> &symbols = words[i].symbols;
      size_t kept = 0; // symbols of the new word so far
      for (size_t j = 0; j < symbols.size(); ++j) {
        const bool found =
            j + 1 < symbols.size() && symbols[j] == pair.first && symbols[j + 1] == pair.second;
        if (found && kept > 0) {
          change({symbols[kept - 1], pair.first}, i, -1, changed);
          change({symbols[kept - 1], merged}, i, 1, changed);
        }
        if (found && j + 2 < symbols.size()) {
          change({pair.second, symbols[j + 2]}, i, -1, changed);
          change({merged, symbols[j + 2]}, i, 1, changed);
        }
        symbols[kept++] = found ? merged : symbols[j];
        j += found;
      }
      symbols.resize(kept);
    }
    counts[pair] = 0;
    push(changed);
  }

  // After this call, best() never returns the pair.
  void forget(Pair pair) { counts[pair] = 0; }

private:
  struct Entry {
    int64_t count;
    Pair pair;
    bool operator<(const Entry &other) const {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };
  struct PairHash {
    size_t operator()(const Pair &pair) const {
      return std::hash<uint64_t>()(uint64_t(pair.first) << 32 | pair.second);
    }
  };
  std::vector<Word> words;
  std::unordered_map<Pair, int64_t, PairHash> counts;
  std::unordered_map<Pair, std::vector<size_t>, PairHash> where; // indices of words with the pair
  std::priority_queue<Entry> queue;

  void change(Pair pair, size_t word, int sign, std::set<Pair> &changed) {
    counts[pair] += sign * words[word].count;
    if (sign > 0) {
      where[pair].push_back(word);
      changed.insert(pair);
    }
  }
  void push(const std::set<Pair> &pairs) {
    for (const Pair &pair : pairs)
      if (counts[pair] > 0)
        queue.push({counts[pair], pair});
  }
};

} // namespace

Result<void> BpeTrainer::checkEndOfText(const std::string &endOfText) {
  const std::vector<std::string> &characters = byteCharacters();
  const char *why = nullptr;
  if (endOfText.empty())
    why = "it is empty";
  else if (replaceInvalidUtf8(endOfText) != endOfText)
    why = "it is not UTF-8";
  else if (std::find(characters.begin(), characters.end(), endOfText) != characters.end())
    why = "it is the character of a byte";
  if (why)
    return userError("{} cannot end documents: {}", inQuotes(replaceInvalidUtf8(endOfText)), why);
  return {};
}

Result<BpeTrainer::Trained> BpeTrainer::train(uint32_t size, const std::string &endOfText) const {
  LMC_TRY(checkEndOfText(endOfText));
  if (size < 257)
    return userError(
        "a vocabulary of {} tokens is too small: one is special, and 256 are the bytes", size);
  if (words.empty())
    return Error{"the text has no words"};
  // The ids of bytes follow the order of the characters that stand for the bytes.
  std::vector<std::string> pieces = {endOfText};
  std::vector<std::string> characters = byteCharacters();
  std::sort(characters.begin(), characters.end());
  pieces.insert(pieces.end(), characters.begin(), characters.end());
  uint32_t idOfByte[256];
  for (int byte = 0; byte < 256; ++byte)
    idOfByte[byte] = static_cast<uint32_t>(
        std::find(pieces.begin() + 1, pieces.end(), byteCharacters()[byte]) - pieces.begin());

  std::vector<Training::Word> symbols;
  for (const auto &[word, count] : words) {
    symbols.push_back({{}, static_cast<int64_t>(count)});
    for (char byte : word)
      symbols.back().symbols.push_back(idOfByte[static_cast<uint8_t>(byte)]);
  }
  Training training(std::move(symbols));
  Json merges = Json::array();
  StringMap<uint32_t> known;
  for (uint32_t id = 0; id < pieces.size(); ++id)
    known.emplace(pieces[id], id);
  while (pieces.size() < size) {
    const auto pair = training.best();
    if (!pair)
      break;
    // Leaves out a merge whose result is the special token, so that no text becomes that token.
    if (pieces[pair->first] + pieces[pair->second] == endOfText) {
      training.forget(*pair);
      continue;
    }
    merges.push_back(Json::array({pieces[pair->first], pieces[pair->second]}));
    // Two pairs can make the same piece ("a" + "bc", "ab" + "c"), which gets only one id.
    const auto [place, isNew] = known.emplace(pieces[pair->first] + pieces[pair->second],
                                              static_cast<uint32_t>(pieces.size()));
    if (isNew)
      pieces.push_back(place->first);
    training.merge(*pair, place->second);
  }

  Json vocabulary = Json::object();
  for (uint32_t id = 0; id < pieces.size(); ++id)
    vocabulary[pieces[id]] = id;
  Json file = Json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [{"id": 0, "content": "", "single_word": false, "lstrip": false,
                      "rstrip": false, "normalized": false, "special": true}],
    "normalizer": null,
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": ""}, "behavior": "Isolated", "invert": false},
      {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]},
    "post_processor": null,
    "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                "use_regex": false},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
              "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
              "ignore_merges": false}
  })");
  file["added_tokens"][0]["content"] = endOfText;
  file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = kWords;
  file["model"]["vocab"] = std::move(vocabulary);
  file["model"]["merges"] = std::move(merges);
  return Trained{file.dump(1) + "\n", static_cast<uint32_t>(pieces.size())};
}

} // namespace lmc
