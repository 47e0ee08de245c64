// lmc-data inspect: reports the contents of a token file or of a checkpoint.

#include "runtime/data/BestFit.h"
#include "runtime/data/TokenFile.h"
#include "tools/lmc-data/Commands.h"
#include "tools/lmc-data/Progress.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <unordered_map>

namespace lmc {

std::optional<uint32_t> separatorOf(const TokenFile &file, std::optional<uint32_t> given) {
  if (given)
    return given;
  if (file.hasDocuments())
    return file.endOfDocument() < 0 ? std::nullopt : std::optional<uint32_t>(file.endOfDocument());
  return file.tokenBytes() == 2 ? 50256 : 128000;
}

namespace {

constexpr uint64_t kChunk = 1 << 16;    // tokens per read
constexpr uint32_t kDenseIds = 1 << 20; // smaller ids are counted in a table, others in a map
constexpr size_t kMostFrequent = 10;
constexpr size_t kBarWidth = 40;
constexpr uint64_t kNowhere = UINT64_MAX;

struct Summary {
  std::vector<std::pair<int64_t, uint64_t>> counts; // (id, times), most frequent first
  double entropy = 0;                               // nats per token
  std::optional<uint32_t> eod;
  bool isGuess = false; // true if neither the file nor the user gives `eod`
  uint64_t eods = 0;
  uint64_t doubled = 0;             // end-of-document tokens that follow another one directly
  uint64_t firstDoubled = kNowhere; // position of the first of these tokens
  // The documents' lengths in tokens (end tokens included), in ascending order; empty: not known.
  std::vector<uint64_t> documentLengths;
  // The result of data.packing = "best_fit" with windows of `window` tokens; 0: not requested.
  uint64_t window = 0, windows = 0, padding = 0, cutDocuments = 0;
};

Result<void> packDocuments(const TokenFile &file, uint64_t window, Summary &summary) {
  if (!file.hasDocuments())
    return userError("{}: does not say where its documents start, which --best-fit needs",
                     file.path());
  // Packing depends only on lengths, so `starts` may list documents by length, not in file order.
  std::vector<uint64_t> starts;
  uint64_t end = 0;
  for (uint64_t length : summary.documentLengths) {
    starts.push_back(end);
    end += length;
  }
  const PackedWindows packed = packBestFit(starts, end, window);
  summary.window = window;
  summary.windows = packed.size();
  summary.padding = packed.size() * window - end;
  summary.cutDocuments = packed.cut;
  return {};
}

Result<Summary> summarise(const TokenFile &file, std::optional<uint32_t> givenEod) {
  Summary summary;
  summary.eod = separatorOf(file, givenEod);
  summary.isGuess = !givenEod && !file.hasDocuments();
  std::vector<uint64_t> dense(file.tokenBytes() > 2 ? kDenseIds : 1u << (8 * file.tokenBytes()));
  std::unordered_map<int64_t, uint64_t> sparse;
  std::vector<uint64_t> ends; // for each end-of-document token, the position after it
  const bool hasTable = file.hasDocuments(), isSigned = infoOf(file.type()).isSigned;
  bool previousIsEod = false;
  std::vector<int32_t> chunk(kChunk);
  Progress progress("reading", file.size() * file.tokenBytes());
  for (uint64_t begin = 0; begin < file.size(); begin += kChunk) {
    uint64_t count = std::min(kChunk, file.size() - begin);
    LMC_TRY(file.read(begin, count, chunk.data()));
    progress.advance(count * file.tokenBytes());
    for (uint64_t i = 0; i < count; ++i) {
      const int64_t id = isSigned ? int64_t(chunk[i]) : int64_t(static_cast<uint32_t>(chunk[i]));
      ++(static_cast<uint64_t>(id) < dense.size() ? dense[id] : sparse[id]);
      bool isEod = summary.eod == id;
      if (isEod && previousIsEod && summary.doubled++ == 0)
        summary.firstDoubled = begin + i;
      if (isEod && !hasTable)
        ends.push_back(begin + i + 1);
      summary.eods += isEod;
      previousIsEod = isEod;
    }
  }

  for (uint32_t id = 0; id < dense.size(); ++id)
    if (dense[id])
      summary.counts.emplace_back(id, dense[id]);
  summary.counts.insert(summary.counts.end(), sparse.begin(), sparse.end());
  std::sort(summary.counts.begin(), summary.counts.end(), [](const auto &a, const auto &b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  for (auto [id, times] : summary.counts) {
    double share = double(times) / file.size();
    summary.entropy -= share * std::log(share);
  }

  auto addDocument = [&](uint64_t begin, uint64_t end) {
    if (begin < end) // Megatron's documents may be empty
      summary.documentLengths.push_back(end - begin);
  };
  if (hasTable) {
    LMC_LET(table, file.documentStarts(0, file.documents()));
    const std::vector<uint64_t> &starts = *table;
    for (size_t i = 0; i < starts.size(); ++i) {
      uint64_t end = i + 1 < starts.size() ? starts[i + 1] : file.size();
      if (starts[i] > end || end > file.size())
        return userError(
            "{}: the table of documents is damaged at document {}; see: lmc-data verify",
            file.path(), i);
      addDocument(starts[i], end);
    }
  } else if (!ends.empty()) {
    if (ends.back() != file.size())
      ends.push_back(file.size());
    // A file may begin with a separator. This first separator ends no document.
    uint64_t begin = 0;
    for (uint64_t end : ends) {
      if (!(begin == 0 && end == 1))
        addDocument(begin, end);
      begin = end;
    }
  }
  std::sort(summary.documentLengths.begin(), summary.documentLengths.end());
  return summary;
}

// Returns, for each 2^k, the number of documents whose length in tokens is in [2^k, 2^(k+1)).
std::map<uint64_t, uint64_t> lengthHistogram(const Summary &summary) {
  std::map<uint64_t, uint64_t> histogram;
  for (uint64_t length : summary.documentLengths)
    ++histogram[std::bit_floor(length)];
  return histogram;
}

std::string percent(uint64_t part, uint64_t whole) {
  return fmt::format("{:.2f} %", 100.0 * part / whole);
}

void printText(const TokenFile &file, const Summary &summary) {
  std::string vocabulary =
      file.vocabulary() ? fmt::format(", vocabulary {}", file.vocabulary()) : "";
  fmt::print("{}\n", file.path());
  fmt::print("format           {}, {} tokens{}\n", nameOf(file.format()), infoOf(file.type()).name,
             vocabulary);
  fmt::print("tokens           {}\n", file.size());
  const std::vector<uint64_t> &lengths = summary.documentLengths;
  if (lengths.empty()) {
    fmt::print("documents        not recorded in this format\n");
  } else {
    fmt::print("documents        {}{}\n", lengths.size(),
               file.hasDocuments() ? "" : " (by their ends)");
    fmt::print("document length  shortest {}, median {}, mean {:.1f}, longest {}\n",
               lengths.front(), lengths[lengths.size() / 2], double(file.size()) / lengths.size(),
               lengths.back());
    auto histogram = lengthHistogram(summary);
    uint64_t most = 0;
    for (auto [length, count] : histogram)
      most = std::max(most, count);
    for (auto [length, count] : histogram)
      fmt::print("  {:>22}  {:>10}  {:#<{}}\n", fmt::format("{} - {}", length, 2 * length - 1),
                 count, "", (count * kBarWidth + most - 1) / most);
  }
  if (summary.window > 0)
    fmt::print(
        "best fit         {} windows of {} tokens, {} tokens of padding ({}), {} documents are "
        "longer\n",
        summary.windows, summary.window, summary.padding,
        percent(summary.padding, summary.windows * summary.window), summary.cutDocuments);
  if (!summary.eod)
    fmt::print("end of document  none\n");
  else if (summary.isGuess && summary.eods == 0)
    fmt::print("end of document  not known: {}, the usual id, never occurs; give --eod=ID\n",
               *summary.eod);
  else if (summary.doubled == 0)
    fmt::print("end of document  id {}, {} times, none doubled\n", *summary.eod, summary.eods);
  else
    fmt::print("end of document  id {}, {} times, {} DOUBLED, the first at token {}\n",
               *summary.eod, summary.eods, summary.doubled, summary.firstDoubled);
  fmt::print("unigram entropy  {:.4f} nats per token\n", summary.entropy);
  fmt::print("different ids    {}, the most frequent:\n", summary.counts.size());
  for (size_t i = 0; i < std::min(kMostFrequent, summary.counts.size()); ++i) {
    auto [id, times] = summary.counts[i];
    // If tokens are bytes, an id is a character. Otherwise the text of an id is not known.
    bool isCharacter = file.vocabulary() == 256 && id >= 0x20 && id < 0x7f;
    fmt::print("  {:>10} {:3}  {:>12}  {:>8}\n", id,
               isCharacter ? fmt::format("'{}'", static_cast<char>(id)) : "", times,
               percent(times, file.size()));
  }
}

void printJson(const TokenFile &file, const Summary &summary) {
  nlohmann::ordered_json json;
  json["path"] = file.path();
  json["format"] = nameOf(file.format());
  json["token_type"] = infoOf(file.type()).name;
  json["token_bytes"] = file.tokenBytes();
  json["vocabulary"] = file.vocabulary();
  json["tokens"] = file.size();
  json["documents"] = summary.documentLengths.size();
  json["document_lengths"] = nlohmann::ordered_json::array();
  for (auto [length, count] : lengthHistogram(summary))
    json["document_lengths"].push_back(
        {{"from", length}, {"to", 2 * length - 1}, {"documents", count}});
  json["end_of_document"] = summary.eod ? nlohmann::ordered_json(*summary.eod) : nullptr;
  json["end_of_document_tokens"] = summary.eods;
  json["doubled_end_of_document"] = summary.doubled;
  if (summary.window > 0)
    json["best_fit"] = {{"window", summary.window},
                        {"windows", summary.windows},
                        {"padding", summary.padding},
                        {"longer_documents", summary.cutDocuments}};
  json["unigram_entropy_nats"] = summary.entropy;
  json["distinct_ids"] = summary.counts.size();
  json["most_frequent"] = nlohmann::ordered_json::array();
  for (size_t i = 0; i < std::min(kMostFrequent, summary.counts.size()); ++i)
    json["most_frequent"].push_back(
        {{"id", summary.counts[i].first}, {"count", summary.counts[i].second}});
  // The file's name may be invalid UTF-8. Without `replace`, json.dump() would throw an exception.
  fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

struct InspectOptions {
  std::string path;
  DataFormat format = DataFormat::Auto;
  std::optional<uint32_t> eod;
  uint64_t window = 0; // value of --best-fit; 0: not given
  bool verify = false; // checkpoints only
  bool json = false;
};

Result<void> inspect(const InspectOptions &options) {
  if (std::error_code failed; std::filesystem::is_directory(options.path, failed))
    return inspectCheckpoint(options.path, options.verify, options.json);
  LMC_LET(file, TokenFile::open(options.path, options.format));
  LMC_LET(summary, summarise(**file, options.eod));
  if (options.window > 0)
    LMC_TRY(packDocuments(**file, options.window, *summary));
  if (options.json)
    printJson(**file, *summary);
  else
    printText(**file, *summary);
  return {};
}

} // namespace

DataCommand addInspectCommand(CommandLine &line) {
  auto options = std::make_shared<InspectOptions>();
  Command &command = line.command("inspect", "prints what a token file or a checkpoint holds");
  command.argument("PATH", options->path,
                   "a token file, a checkpoint's folder, or a run's: its newest checkpoint");
  addFormatOption(command, options->format);
  command.number(
      "--eod", "ID", 0, UINT32_MAX, options->eod,
      "the id that ends a document, where the file does not say. Default: 50256 (GPT-2) for uint16 "
      "files, 128000 (Llama 3) for uint32 files");
  command.number(
      "--best-fit", "N", 1, 1 << 26, options->window,
      "also print how the documents fill windows of N tokens with data.packing = \"best_fit\"");
  command.flag("--verify", options->verify,
               "compares the checksums of a checkpoint's files, which reads all of them");
  command.flag("--json", options->json, "print the report as one JSON object");
  command.footer(
      "Of a token file: prints the format, the number of tokens and documents, how long documents\n"
      "are, the most frequent ids, ends of documents that stand doubled, and the unigram entropy:\n"
      "the loss, in nats per token, of a model that knows nothing but how frequent each id is.\n"
      "Of a checkpoint: prints step, tokens, parameters, files, settings with their origin,\n"
      "declared changes, the plan's hash, versions and host.");
  return {&command, [=] { return inspect(*options); }};
}

} // namespace lmc
