#include "tools/lmc-data/PackReport.h"

#include "ground/support/File.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <iterator>

namespace lmc {

namespace {

struct Item {
  const char *key; // in the JSON
  uint64_t count;
  std::string text; // for the console
  Finding places;   // the documents that this item counts
  bool fault = true; // true if --strict forbids this item
};

std::string share(uint64_t part, uint64_t whole) {
  return fmt::format("{:.2g} %", whole == 0 ? 0.0 : 100.0 * part / whole);
}

std::vector<Item> itemsOf(const PackReport &report) {
  const auto &[merged, inside, empty, spelled, unknown, fallback] = report.counts;
  const Audit::Findings &found = report.findings;
  const std::string end = report.endOfDocument ? std::to_string(*report.endOfDocument) : "";
  uint64_t tokens = 0;
  for (const PackReport::File &file : report.files)
    tokens += file.tokens;
  return {
      {"end_of_document_at_edges", merged.count,
       fmt::format("the text has id {} at the edges of documents, {} times; merged into the one "
                   "between documents",
                   end, merged.count),
       merged.finding()},
      {"end_of_document_inside", inside.count,
       fmt::format("the text has id {} inside documents too, {} times", end, inside.count),
       inside.finding()},
      {"empty_documents", empty.count, fmt::format("{} empty documents left out", empty.count),
       empty.finding()},
      {"repeated_documents", found.repeated.count,
       fmt::format("{} documents have the text of an earlier one, {} of all text",
                   found.repeated.count, share(found.repeatedBytes, found.bytes)),
       found.repeated},
      {"control_characters", found.controlCharacters,
       fmt::format("{} control characters in {} documents", found.controlCharacters,
                   found.control.count),
       found.control},
      {"replacement_characters", found.replacementCharacters,
       fmt::format("{} replacement characters (U+FFFD) in {} documents",
                   found.replacementCharacters, found.replaced.count),
       found.replaced},
      {"special_tokens_in_text", spelled.count,
       fmt::format("the text spells special tokens in {} places, which became text", spelled.count),
       spelled.finding()},
      {"unknown_tokens", unknown.count,
       fmt::format("{} tokens are the unknown one, {} of all", unknown.count,
                   share(unknown.count, tokens)),
       unknown.finding()},
      {"byte_fallback_tokens", fallback.count,
       fmt::format("{} tokens are bytes of characters that the vocabulary does not have, {} of all",
                   fallback.count, share(fallback.count, tokens)),
       fallback.finding(), false}};
}

} // namespace

std::string PackReport::text() const {
  std::string text;
  const auto out = std::back_inserter(text);
  for (const File &file : files)
    fmt::format_to(out, "{}: {} tokens, {} documents{}\n", file.path, file.tokens, file.documents,
                   file.part.empty() ? "" : " (" + file.part + ")");
  if (endOfDocument)
    fmt::format_to(out, "end of document: id {}, one between documents\n", *endOfDocument);
  else
    fmt::format_to(out, "end of document: none\n");
  if (!beginOfDocument.empty())
    fmt::format_to(out, "begin of document: id {}\n", fmt::join(beginOfDocument, ", "));
  for (const Item &item : itemsOf(*this))
    if (item.count > 0)
      fmt::format_to(out, "note: {}{}\n", item.text, item.places.example());
  if (!findings.complete)
    fmt::format_to(out, "note: documents were compared with the first {} different texts only\n",
                   Audit::kRemembered);
  return text;
}

Result<void> PackReport::write(const std::string &path) const {
  nlohmann::ordered_json json = {{"inputs", inputs},
                                 {"documents_read", findings.documents},
                                 {"bytes_of_text", findings.bytes}};
  json["tokenizer"] =
      tokenizer.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(tokenizer);
  json["end_of_document"] =
      endOfDocument ? nlohmann::ordered_json(*endOfDocument) : nlohmann::ordered_json();
  json["begin_of_document"] = beginOfDocument;
  for (const File &file : files)
    json["files"].push_back(
        {{"path", file.path}, {"tokens", file.tokens}, {"documents", file.documents}});
  nlohmann::ordered_json &audit = json["audit"];
  for (const Item &item : itemsOf(*this)) {
    audit[item.key]["count"] = item.count;
    if (item.places.count > 0) {
      audit[item.key]["documents"] = item.places.count;
      audit[item.key]["first"] = item.places.places;
    }
  }
  audit["repeated_documents"]["bytes_of_text"] = findings.repeatedBytes;
  audit["repeated_documents"]["all_were_compared"] = findings.complete;
  return writeTextFile(path,
                       json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

Result<void> PackReport::checkStrict() const {
  std::vector<std::string> faults;
  for (const Item &item : itemsOf(*this))
    if (item.fault && item.count > 0)
      faults.push_back(item.text + item.places.example());
  if (faults.empty())
    return {};
  return userError("{}: not written, because of --strict: {}; mend or remove these documents, or "
                   "pack without --strict, which lists more of them in {}.audit.json",
                   files[0].path, fmt::join(faults, "; "), files[0].path);
}

} // namespace lmc
