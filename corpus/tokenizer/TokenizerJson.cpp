// Reads tokenizer.json, with the format and defaults of Hugging Face's `tokenizers` 0.23.3.

#include "corpus/tokenizer/JsonNode.h"
#include "corpus/tokenizer/Pipeline.h"
#include "corpus/tokenizer/unicode/Utf8.h"
#include "ground/support/File.h"
#include "ground/support/Json.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <functional>

namespace lmc {

namespace {

constexpr uint64_t kMaximumJsonBytes = 1 << 30;
constexpr uint64_t kMostGaps = 1 << 20; // maximum number of ids without a token; each takes memory

void refuseType(const JsonNode &node) {
  node.at("type").fail(fmt::format("'{}' is not supported", node.at("type").text()));
}

std::string typeOf(const JsonNode &node) {
  if (!node.json().is_object()) {
    node.fail(fmt::format("expected an object, found {}", node.json().type_name()));
    return "";
  }
  return node.at("type").text();
}

// Returns true if component `node` has the type `name`. Then a key outside of `keys` is an error.
bool isType(const JsonNode &node, std::string_view name,
            std::initializer_list<std::string_view> keys) {
  if (typeOf(node) != name)
    return false;
  node.onlyKeys(keys);
  return true;
}

// Returns the value in `made`. If it has an Error, reports the Error at `node` and returns null.
template <typename Made> Made orFail(const JsonNode &node, Result<Made> made) {
  if (made)
    return std::move(*made);
  node.fail(made.error().message);
  return nullptr;
}

// Returns a function that calls `steps` one after the other, up to the first Error.
template <typename... Arguments>
std::function<Result<void>(Arguments...)>
inSequence(std::vector<std::function<Result<void>(Arguments...)>> steps) {
  return [steps = std::move(steps)](Arguments... arguments) -> Result<void> {
    for (const auto &step : steps)
      LMC_TRY(step(arguments...));
    return {};
  };
}

// Reads {"String": ...} or {"Regex": ...}.
Matcher readPattern(const JsonNode &node) {
  node.onlyKeys({"String", "Regex"});
  if (node.size() != 1)
    node.fail("expected either String or Regex");
  if (auto text = node.find("String")) {
    if (text->text().empty())
      text->fail("is empty");
    return matchText(text->text());
  }
  const JsonNode regex = node.at("Regex");
  return orFail(regex, matchRegex(regex.text()));
}

std::string readCharacter(const JsonNode &node) {
  std::string text = node.text();
  if (text.empty() || utf8Length(text[0]) != text.size())
    node.fail("expected one character");
  return text;
}

std::string decodeBase64(const JsonNode &node) {
  const std::string text = node.text();
  std::string bytes;
  uint32_t bits = 0;
  int count = 0; // the lowest `count` bits of `bits` are not appended to `bytes` yet
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const size_t end = std::min(text.find_last_not_of('=') + 1, text.size());
  if (text.size() % 4 != 0 || text.size() - end > 2)
    node.fail("is not base64");
  for (char c : std::string_view(text).substr(0, end)) {
    const size_t digit = kDigits.find(c);
    if (digit == kDigits.npos) {
      node.fail("is not base64");
      return "";
    }
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count >= 8)
      bytes += static_cast<char>(bits >> (count -= 8));
  }
  return bytes;
}

Normalizer readNormalizer(const JsonNode &node) {
  if (isType(node, "Sequence", {"type", "normalizers"})) {
    std::vector<Normalizer> all;
    for (const JsonNode &element : node.at("normalizers").elements())
      all.push_back(readNormalizer(element));
    return inSequence(std::move(all));
  }
  if (isType(node, "Replace", {"type", "pattern", "content"}))
    return makeReplace(readPattern(node.at("pattern")), node.at("content").text());
  if (isType(node, "Prepend", {"type", "prepend"}))
    return makePrepend(node.at("prepend").text());
  if (isType(node, "Strip", {"type", "strip_left", "strip_right"}))
    return makeStrip(node.at("strip_left").boolean(), node.at("strip_right").boolean());
  if (isType(node, "Precompiled", {"type", "precompiled_charsmap"})) {
    const JsonNode table = node.at("precompiled_charsmap");
    return orFail(table, makePrecompiled(decodeBase64(table)));
  }
  static constexpr std::pair<std::string_view, Normalizer (*)()> kWithoutKeys[] = {
      {"NFC", [] { return makeNormalForm(NormalForm::NFC); }},
      {"NFD", [] { return makeNormalForm(NormalForm::NFD); }},
      {"NFKC", [] { return makeNormalForm(NormalForm::NFKC); }},
      {"NFKD", [] { return makeNormalForm(NormalForm::NFKD); }},
      {"Lowercase", makeLowercase},
      {"StripAccents", makeStripAccents},
      {"Nmt", makeNmt}};
  for (const auto &[name, make] : kWithoutKeys)
    if (isType(node, name, {"type"}))
      return make();
  refuseType(node);
  return nullptr;
}

SplitBehavior readBehavior(const JsonNode &node) {
  return static_cast<SplitBehavior>(
      node.oneOf({"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"}));
}

std::pair<std::string, PrependScheme> readMetaspace(const JsonNode &node) {
  node.onlyKeys({"type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
  std::string mark = readCharacter(node.at("replacement"));
  PrependScheme scheme = PrependScheme::Always;
  if (auto given = node.find("prepend_scheme"))
    scheme = static_cast<PrependScheme>(given->oneOf({"first", "never", "always"}));
  if (auto space = node.find("add_prefix_space");
      space && !space->boolean() && scheme != PrependScheme::Never)
    space->fail("contradicts prepend_scheme");
  return {std::move(mark), scheme};
}

// The expression at which a ByteLevel pre-tokenizer splits by default, which is GPT-2's.
constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

struct PreTokenizers {
  std::vector<PreTokenizer> all;
  bool byteLevel = false; // true if the last pre-tokenizer makes the words byte-level
};

void readPreTokenizer(const JsonNode &node, PreTokenizers &out) {
  const auto split = [&](Matcher matcher, SplitBehavior behavior, bool invert = false) {
    out.all.push_back(makeSplit(std::move(matcher), behavior, invert));
  };
  if (isType(node, "Sequence", {"type", "pretokenizers"})) {
    for (const JsonNode &element : node.at("pretokenizers").elements())
      readPreTokenizer(element, out);
    return;
  }
  if (out.byteLevel)
    return node.fail("a pre-tokenizer after ByteLevel is not supported");
  if (isType(node, "ByteLevel", {"type", "add_prefix_space", "trim_offsets", "use_regex"})) {
    if (node.at("add_prefix_space").boolean())
      out.all.push_back(makePrefixSpace());
    node.at("trim_offsets").boolean(); // this key only affects the offsets of tokens
    auto useRegex = node.find("use_regex");
    if (!useRegex || useRegex->boolean())
      split(orFail(node, matchRegex(kGpt2)), SplitBehavior::Isolated);
    out.byteLevel = true;
  } else if (isType(node, "Split", {"type", "pattern", "behavior", "invert"})) {
    split(readPattern(node.at("pattern")), readBehavior(node.at("behavior")),
          node.at("invert").boolean());
  } else if (isType(node, "Digits", {"type", "individual_digits"})) {
    split(matchOneOf(numericCharacters()), node.at("individual_digits").boolean()
                                               ? SplitBehavior::Isolated
                                               : SplitBehavior::Contiguous);
  } else if (isType(node, "Punctuation", {"type", "behavior"})) {
    auto behavior = node.find("behavior");
    split(matchOneOf(punctuationCharacters()),
          behavior ? readBehavior(*behavior) : SplitBehavior::Isolated);
  } else if (isType(node, "Whitespace", {"type"})) {
    // Each run of word characters becomes a word, and so does each run of other characters.
    split(matchOneOf(spaceCharacters()), SplitBehavior::Removed);
    split(matchOneOf(wordCharacters()), SplitBehavior::Contiguous);
  } else if (isType(node, "WhitespaceSplit", {"type"})) {
    split(matchOneOf(spaceCharacters()), SplitBehavior::Removed);
  } else if (typeOf(node) == "Metaspace") {
    const auto [mark, scheme] = readMetaspace(node);
    if (scheme == PrependScheme::First && !out.all.empty())
      return node.at("prepend_scheme").fail("'first' after another pre-tokenizer is not supported");
    auto splits = node.find("split");
    out.all.push_back(makeMetaspace(mark, scheme, !splits || splits->boolean()));
  } else {
    refuseType(node);
  }
}

Decoder readDecoder(const JsonNode &node) {
  if (isType(node, "Sequence", {"type", "decoders"})) {
    std::vector<Decoder> all;
    for (const JsonNode &element : node.at("decoders").elements())
      all.push_back(readDecoder(element));
    return inSequence(std::move(all));
  }
  if (isType(node, "ByteLevel", {"type", "add_prefix_space", "trim_offsets", "use_regex"}))
    return makeByteLevelDecoder();
  if (isType(node, "ByteFallback", {"type"}))
    return makeByteFallbackDecoder();
  if (isType(node, "Fuse", {"type"}))
    return makeFuseDecoder();
  if (typeOf(node) == "Metaspace") {
    const auto [mark, scheme] = readMetaspace(node);
    return makeMetaspaceDecoder(mark, scheme != PrependScheme::Never);
  }
  if (isType(node, "Replace", {"type", "pattern", "content"}))
    return makeReplaceDecoder(readPattern(node.at("pattern")), node.at("content").text());
  if (isType(node, "Strip", {"type", "content", "start", "stop"}))
    return makeStripDecoder(readCharacter(node.at("content")), node.at("start").number(),
                            node.at("stop").number());
  refuseType(node);
  return nullptr;
}

// Reads the ids that a post-processor adds around a text. If it adds ids, sets `placed` to true.
void readPostProcessor(const JsonNode &node, PipelineParts &parts, bool &placed) {
  if (isType(node, "Sequence", {"type", "processors"})) {
    for (const JsonNode &element : node.at("processors").elements())
      readPostProcessor(element, parts, placed);
    return;
  }
  // This type only changes the offsets of tokens in the text, which are not used here.
  if (isType(node, "ByteLevel", {"type", "add_prefix_space", "trim_offsets", "use_regex"}))
    return;
  if (placed)
    return node.fail("a second post-processor that adds tokens is not supported");
  placed = true;
  for (const char *name : {"RobertaProcessing", "BertProcessing"})
    if (isType(node, name, {"type", "sep", "cls", "trim_offsets", "add_prefix_space"})) {
      parts.before = {node.at("cls").at(1).number()};
      parts.after = {node.at("sep").at(1).number()};
      return;
    }
  if (!isType(node, "TemplateProcessing", {"type", "single", "pair", "special_tokens"}))
    return refuseType(node);
  const JsonNode tokens = node.at("special_tokens");
  bool text = false;
  for (const JsonNode &piece : node.at("single").elements()) {
    piece.onlyKeys({"Sequence", "SpecialToken"});
    if (piece.json().is_object() && piece.size() != 1)
      piece.fail("expected either Sequence or SpecialToken");
    if (auto sequence = piece.find("Sequence")) {
      sequence->onlyKeys({"id", "type_id"});
      if (sequence->at("id").text() != "A" || text)
        sequence->fail("a template whose text is not A, once, is not supported");
      text = true;
      continue;
    }
    piece.at("SpecialToken").onlyKeys({"id", "type_id"});
    const JsonNode token = tokens.at(piece.at("SpecialToken").at("id").text());
    token.onlyKeys({"id", "ids", "tokens"});
    for (const JsonNode &id : token.at("ids").elements())
      (text ? parts.after : parts.before).push_back(id.number());
  }
  if (!text)
    node.at("single").fail("has no text");
}

std::unique_ptr<Model> readBpe(const JsonNode &node, bool byteLevel) {
  node.onlyKeys({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                 "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
  BpeOptions options;
  options.byteLevel = byteLevel;
  if (auto dropout = node.find("dropout"); dropout && dropout->real() != 0)
    dropout->fail("is not supported: the ids of a text would be drawn at random");
  if (auto unknown = node.find("unk_token"))
    options.unknown = unknown->text();
  if (auto prefix = node.find("continuing_subword_prefix"))
    options.prefix = prefix->text();
  if (auto suffix = node.find("end_of_word_suffix"))
    options.suffix = suffix->text();
  for (auto [key, flag] : {std::pair{"fuse_unk", &options.fuseUnknown},
                           std::pair{"byte_fallback", &options.byteFallback},
                           std::pair{"ignore_merges", &options.ignoreMerges}})
    if (auto given = node.find(key))
      *flag = given->boolean();
  if (byteLevel && !options.prefix.empty())
    node.at("continuing_subword_prefix").fail("is not supported with ByteLevel");
  if (byteLevel && !options.suffix.empty())
    node.at("end_of_word_suffix").fail("is not supported with ByteLevel");

  const JsonNode vocabulary = node.at("vocab");
  if (!vocabulary.json().is_object()) {
    vocabulary.fail("expected an object");
    return nullptr;
  }
  const uint64_t limit = vocabulary.size() + kMostGaps;
  for (const auto &[piece, id] : vocabulary.json().items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= limit) {
      vocabulary.at(piece).fail(fmt::format("expected an id below {}: the vocabulary has {} tokens",
                                            limit, vocabulary.size()));
      return nullptr;
    }
    const auto number = id.get<uint32_t>();
    options.vocabulary.ids.emplace(piece, number);
    std::vector<std::string> &pieces = options.vocabulary.pieces;
    if (number >= pieces.size())
      pieces.resize(number + 1);
    if (!pieces[number].empty())
      vocabulary.at(piece).fail(fmt::format("has the id {} of '{}', too", number, pieces[number]));
    pieces[number] = piece;
  }
  const JsonNode merges = node.at("merges");
  for (const JsonNode &entry : merges.elements()) {
    const nlohmann::json &merge = entry.json();
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      options.merges.emplace_back(merge[0], merge[1]);
      continue;
    }
    // Older files write a merge as "LEFT RIGHT".
    const std::string text = merge.is_string() ? merge.get<std::string>() : "";
    const size_t space = text.find(' ');
    if (text.starts_with("#version"))
      continue;
    if (space == text.npos || text.find(' ', space + 1) != text.npos) {
      entry.fail("expected two pieces");
      return nullptr;
    }
    options.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
  if (node.failed())
    return nullptr;
  return orFail(merges, makeBpe(std::move(options)));
}

std::unique_ptr<Model> readUnigram(const JsonNode &node) {
  node.onlyKeys({"type", "unk_id", "vocab", "byte_fallback"});
  UnigramOptions options;
  if (auto unknown = node.find("unk_id"))
    options.unknown = unknown->number();
  if (auto fallback = node.find("byte_fallback"))
    options.byteFallback = fallback->boolean();
  for (const JsonNode &entry : node.at("vocab").elements()) {
    options.pieces.emplace_back(entry.at(0).text(), entry.at(1).real());
    if (entry.size() != 2)
      entry.fail("expected a piece and its score");
  }
  if (node.failed())
    return nullptr;
  return orFail(node, makeUnigram(std::move(options)));
}

// Reads the added tokens. As in `tokenizers`, a token of the model keeps its id, and the others get
// ids from the size of the vocabulary on.
void readAddedTokens(const JsonNode &node, PipelineParts &parts) {
  auto next = static_cast<uint32_t>(parts.model->size());
  StringMap<uint32_t> known;
  for (const JsonNode &entry : node.elements()) {
    entry.onlyKeys({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    AddedToken token;
    token.content = entry.at("content").text();
    token.singleWord = entry.at("single_word").boolean();
    token.leftStrip = entry.at("lstrip").boolean();
    token.rightStrip = entry.at("rstrip").boolean();
    token.normalized = entry.at("normalized").boolean();
    token.special = entry.at("special").boolean();
    if (entry.failed() || token.content.empty()) {
      if (token.content.empty())
        entry.at("content").fail("is empty");
      return;
    }
    token.id = idIn(parts.model->vocabulary().ids, token.content);
    if (uint32_t before = idIn(known, token.content); before != kNoId)
      return entry.at("content").fail(fmt::format("'{}' is added twice", token.content));
    if (token.id == kNoId)
      token.id = next++;
    known.emplace(token.content, token.id);
    if (const uint32_t id = entry.at("id").number(); id != token.id && !entry.failed())
      return entry.at("id").fail(
          fmt::format("is {}, but tokenizers gives '{}' the id {}", id, token.content, token.id));
    parts.added.push_back(std::move(token));
  }
}

bool hasToken(const PipelineParts &parts, uint32_t id) {
  const std::vector<std::string> &pieces = parts.model->vocabulary().pieces;
  return (id < pieces.size() && !pieces[id].empty()) ||
         std::any_of(parts.added.begin(), parts.added.end(),
                     [&](const AddedToken &token) { return token.id == id; });
}

Result<std::shared_ptr<const Tokenizer>> readTokenizer(const JsonNode &root) {
  PipelineParts parts;
  root.onlyKeys({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                 "post_processor", "decoder", "model"});
  if (auto version = root.find("version"))
    version->oneOf({"1.0"});
  if (auto truncation = root.find("truncation"))
    truncation->fail("is not supported, because it would cut documents; set it to null");
  if (auto padding = root.find("padding"))
    padding->fail("is not supported, because it would fill documents up; set it to null");
  if (auto normalizer = root.find("normalizer"))
    parts.normalizer = readNormalizer(*normalizer);
  PreTokenizers preTokenizers;
  if (auto preTokenizer = root.find("pre_tokenizer"))
    readPreTokenizer(*preTokenizer, preTokenizers);
  if (!preTokenizers.all.empty())
    parts.preTokenizer = inSequence(std::move(preTokenizers.all));
  if (auto decoder = root.find("decoder"))
    parts.decoder = readDecoder(*decoder);
  bool placed = false;
  if (auto processor = root.find("post_processor"))
    readPostProcessor(*processor, parts, placed);

  const JsonNode model = root.at("model");
  const std::string type = root.failed() ? "" : typeOf(model);
  if (type == "BPE")
    parts.model = readBpe(model, preTokenizers.byteLevel);
  else if (type == "Unigram" && !preTokenizers.byteLevel)
    parts.model = readUnigram(model);
  else if (type == "Unigram")
    model.fail("Unigram with ByteLevel is not supported");
  else if (!root.failed())
    refuseType(model);
  if (auto added = root.find("added_tokens"); added && !root.failed())
    readAddedTokens(*added, parts);
  for (const auto *ids : {&parts.before, &parts.after})
    for (uint32_t id : *ids)
      if (!root.failed() && !hasToken(parts, id))
        root.at("post_processor").fail(fmt::format("adds the id {}, which no token has", id));
  if (root.failed())
    return Error{""};
  auto pipeline = makePipeline(std::move(parts));
  if (!pipeline)
    root.at("added_tokens").fail(pipeline.error().message);
  return pipeline;
}

} // namespace

Result<std::shared_ptr<const Tokenizer>> readTokenizerJson(const std::string &path) {
  LMC_LET(text, readTextFile(path, kMaximumJsonBytes));
  if (!isShallowJson(*text))
    return userError("{}: JSON that is nested too deep", path);
  std::optional<nlohmann::json> json = parseLikeSerde(*text);
  if (!json || !json->is_object())
    return userError("{}: not a JSON object", path);
  std::optional<std::string> fault;
  auto tokenizer = readTokenizer(JsonNode(*json, "", fault));
  if (fault)
    return userError("{}: {}", path, *fault);
  return tokenizer;
}

} // namespace lmc
