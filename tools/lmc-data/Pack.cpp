// lmc-data pack: converts documents to tokens, one per byte.
//
// Exactly one end-of-document token separates two documents. End-of-document bytes that the text
// has at the edges of a document are removed first, because two in a row would teach a model to
// produce one after the other. With a validation file the input is read twice: the first reading
// finds the lengths of the documents, on which the split into training and validation depends.

#include "runtime/data/TokenFileWriter.h"
#include "tools/lmc-data/Commands.h"
#include "tools/lmc-data/Documents.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <numeric>

namespace lmc {

namespace {

constexpr int32_t kNoEod = -1;

struct PackOptions {
  std::vector<std::string> inputs;
  std::string output, validation;
  std::optional<double> validationFraction; // default: 0.05
  DocumentOptions documents;
  int32_t eod = 0;

  uint32_t vocabulary() const { return std::max(256, eod + 1); }
};

// Receives the text of documents without end-of-document bytes at their edges. Pieces are never
// empty.
struct CleanReceiver {
  virtual ~CleanReceiver() = default;
  virtual Result<void> text(std::string_view piece) = 0;
  virtual Result<void> endDocument() = 0;
};

// Removes end-of-document ids at the edges of documents, and documents without other tokens.
class EdgeCleaner : public DocumentReceiver {
public:
  EdgeCleaner(int32_t eod, CleanReceiver &next) : eod(eod), next(next) {}

  uint64_t merged = 0; // end-of-document ids removed at edges
  uint64_t inside = 0; // end-of-document ids kept inside documents
  uint64_t empty = 0;  // documents left out because they have no token

  Result<void> text(std::string_view piece) override {
    if (eod < 0 || eod > 255)
      return pass(piece);
    const char end = static_cast<char>(eod);
    if (!started) {
      size_t first = std::min(piece.find_first_not_of(end), piece.size());
      merged += first;
      piece.remove_prefix(first);
    }
    size_t body = piece.find_last_not_of(end) + 1; // npos + 1 is 0: only end-of-document ids
    if (body > 0) {
      // More text follows, so the ids that were held back are inside the document.
      inside += held + std::count(piece.begin(), piece.begin() + body, end);
      for (; held > 0; --held)
        LMC_TRY(pass({&end, 1}));
      LMC_TRY(pass(piece.substr(0, body)));
    }
    held += piece.size() - body;
    return {};
  }

  Result<void> endDocument() override {
    merged += held;
    held = 0;
    empty += !started;
    if (!started)
      return {};
    started = false;
    return next.endDocument();
  }

private:
  int32_t eod;
  CleanReceiver &next;
  bool started = false; // true if the document has a token
  uint64_t held = 0;    // end-of-document ids that may be at the end of the document

  Result<void> pass(std::string_view piece) {
    if (piece.empty())
      return {};
    started = true;
    return next.text(piece);
  }
};

// Writes one token file, with one end-of-document token between two documents.
class TokenOutput : public CleanReceiver {
public:
  TokenOutput(std::unique_ptr<TokenFileWriter> writer, int32_t eod)
      : writer(std::move(writer)), eod(eod) {}

  Result<void> text(std::string_view piece) override {
    if (between && eod != kNoEod) {
      uint32_t id = eod;
      LMC_TRY(writer->append({&id, 1}));
    }
    if (between)
      writer->beginDocument();
    between = false;
    ids.assign(reinterpret_cast<const uint8_t *>(piece.data()),
               reinterpret_cast<const uint8_t *>(piece.data()) + piece.size());
    return writer->append(ids);
  }
  Result<void> endDocument() override {
    between = true;
    return {};
  }
  TokenFileWriter &file() { return *writer; }

private:
  std::unique_ptr<TokenFileWriter> writer;
  int32_t eod;
  bool between = false; // true between two documents
  std::vector<uint32_t> ids;
};

// Computes the lengths of the documents in bytes, when the input is read for the first time.
struct DocumentLengths : CleanReceiver {
  std::vector<uint64_t> lengths;
  uint64_t current = 0;

  Result<void> text(std::string_view piece) override {
    current += piece.size();
    return {};
  }
  Result<void> endDocument() override {
    lengths.push_back(current);
    current = 0;
    return {};
  }
};

// Says which part of the text goes to the validation file.
struct Split {
  std::vector<bool> documents; // true: to validation; if empty, text from `cut` on goes there
  uint64_t cut = 0;            // bytes of text that go to the training file
};

// Chooses which text becomes validation data, about `fraction` of all. `total` is the sum of the
// lengths, at least 2.
Split chooseSplit(const std::vector<uint64_t> &lengths, uint64_t total, double fraction) {
  Split split;
  const double target = fraction * total;
  split.cut = total - std::clamp<uint64_t>(std::llround(target), 1, total - 1);
  // Documents are taken in the order of a hash of their index, so that the choice does not depend
  // on the text. The loop stops when a further document would increase the distance from the
  // target.
  std::vector<uint64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  auto hash = [](uint64_t document) { return XXH64(&document, sizeof(document), 0); };
  std::sort(order.begin(), order.end(), [&](uint64_t a, uint64_t b) { return hash(a) < hash(b); });
  std::vector<bool> chosen(lengths.size());
  double tokens = 0;
  for (uint64_t document : order) {
    if (tokens + lengths[document] / 2.0 > target)
      break;
    chosen[document] = true;
    tokens += lengths[document];
  }
  if (std::abs(tokens - target) <= target / 2 && tokens < total)
    split.documents = std::move(chosen);
  return split;
}

// Sends each piece of text to the training or the validation file, when the input is read the
// second time.
class Router : public CleanReceiver {
public:
  Router(const Split &split, TokenOutput &training, TokenOutput &validation)
      : split(split), training(training), validation(validation) {}

  Result<void> text(std::string_view piece) override {
    if (!split.documents.empty())
      return current().text(piece);
    size_t first = std::min<uint64_t>(split.cut - std::min(split.cut, bytes), piece.size());
    bytes += piece.size();
    if (first > 0)
      LMC_TRY(training.text(piece.substr(0, first)));
    return first < piece.size() ? validation.text(piece.substr(first)) : Result<void>();
  }
  Result<void> endDocument() override {
    if (!split.documents.empty()) {
      LMC_TRY(current().endDocument());
      ++document;
      return {};
    }
    LMC_TRY(training.endDocument());
    return bytes > split.cut ? validation.endDocument() : Result<void>();
  }

private:
  const Split &split;
  TokenOutput &training, &validation;
  uint64_t document = 0, bytes = 0;

  TokenOutput &current() {
    // Documents that were added to a file between the two readings go to training.
    bool held = document < split.documents.size() && split.documents[document];
    return held ? validation : training;
  }
};

Result<std::string> parseSeparator(const std::string &text) {
  std::string separator;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      separator += text[i];
      continue;
    }
    const std::string_view rest = std::string_view(text).substr(i + 1);
    const std::string_view letters = "fnrt0\\", meanings("\f\n\r\t\0\\", 6);
    if (size_t known = rest.empty() ? letters.npos : letters.find(rest[0]); known != letters.npos) {
      separator += meanings[known];
      ++i;
    } else if (rest.size() >= 3 && rest[0] == 'x' && std::isxdigit(rest[1]) &&
               std::isxdigit(rest[2])) {
      separator += static_cast<char>(std::stoi(std::string(rest.substr(1, 2)), nullptr, 16));
      i += 3;
    } else {
      return Error{fmt::format("--document-separator={}: unknown escape at character {}; \\f \\n "
                               "\\r \\t \\0 \\\\ and \\xHH are understood",
                               text, i + 1)};
    }
  }
  return separator;
}

Result<void> checkPaths(const PackOptions &options) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  for (const std::string &output : {options.output, options.validation})
    for (const std::string &input : options.inputs)
      if (!output.empty() && fs::equivalent(input, output, ignored))
        return Error{
            fmt::format("{}: is both input and output; give --output another name", output)};
  if (options.validation.empty())
    return {};
  if (options.validation == options.output ||
      fs::equivalent(options.validation, options.output, ignored))
    return Error{fmt::format("{}: --output and --validation are the same file", options.output)};
  for (const std::string &input : options.inputs)
    if (fs::exists(input, ignored) && !fs::is_regular_file(input, ignored) &&
        !fs::is_directory(input, ignored))
      return Error{fmt::format("{}: cannot be read twice, as --validation needs; save it to a file "
                               "first",
                               input)};
  return {};
}

Result<void> readInputs(const PackOptions &options, const char *task, EdgeCleaner &cleaner) {
  uint64_t total = 0;
  for (const std::string &input : options.inputs) {
    std::error_code notRegular;
    if (uint64_t size = std::filesystem::file_size(input, notRegular); !notRegular)
      total += size;
  }
  Progress progress(task, total);
  for (const std::string &input : options.inputs)
    LMC_TRY(readDocuments(input, options.documents, cleaner, progress));
  return {};
}

Result<std::unique_ptr<TokenOutput>> createOutput(const PackOptions &options,
                                                  const std::string &path) {
  auto writer = TokenFileWriter::create(path, {options.vocabulary(), options.eod});
  if (!writer)
    return writer.error();
  return std::make_unique<TokenOutput>(std::move(*writer), options.eod);
}

void reportFile(const std::string &path, const TokenFileWriter &file, const char *note) {
  fmt::print("{}: {} tokens, {} documents{}\n", path, file.tokens(), file.documents(), note);
}

void reportEdges(const PackOptions &options, const EdgeCleaner &cleaner) {
  if (options.eod == kNoEod)
    fmt::print("end of document: none\n");
  else
    fmt::print("end of document: id {}, one between documents; {} that the text had at documents' "
               "edges merged\n",
               options.eod, cleaner.merged);
  if (cleaner.inside > 0)
    fmt::print("note: the text has id {} inside documents too, {} times\n", options.eod,
               cleaner.inside);
  if (cleaner.empty > 0)
    fmt::print("note: {} empty documents left out\n", cleaner.empty);
}

Result<void> pack(const PackOptions &options) {
  LMC_TRY(checkPaths(options));
  auto output = createOutput(options, options.output);
  if (!output)
    return output.error();
  if (options.validation.empty()) {
    EdgeCleaner cleaner(options.eod, **output);
    LMC_TRY(readInputs(options, "packing", cleaner));
    LMC_TRY((*output)->file().commit());
    reportFile(options.output, (*output)->file(), "");
    reportEdges(options, cleaner);
    return {};
  }

  auto validation = createOutput(options, options.validation);
  if (!validation)
    return validation.error();
  DocumentLengths measured;
  EdgeCleaner measuring(options.eod, measured);
  LMC_TRY(readInputs(options, "measuring documents", measuring));
  uint64_t total = std::accumulate(measured.lengths.begin(), measured.lengths.end(), uint64_t(0));
  if (total < 2)
    return Error{fmt::format("{}: {} bytes of text, nothing to share with a validation file",
                             options.inputs[0], total)};
  const Split split =
      chooseSplit(measured.lengths, total, options.validationFraction.value_or(0.05));
  Router router(split, **output, **validation);
  EdgeCleaner cleaner(options.eod, router);
  LMC_TRY(readInputs(options, "packing", cleaner));
  // Both files are completed before either gets its name: otherwise an interrupted run could leave
  // files of two runs, which might have text in common.
  LMC_TRY((*output)->file().finish());
  LMC_TRY((*validation)->file().finish());
  LMC_TRY((*output)->file().commit());
  LMC_TRY((*validation)->file().commit());
  reportFile(options.output, (*output)->file(), "");
  reportFile(options.validation, (*validation)->file(),
             split.documents.empty() ? " (the end of the text)" : " (whole documents)");
  reportEdges(options, cleaner);
  return {};
}

} // namespace

DataCommand addPackCommand(CommandLine &line) {
  auto options = std::make_shared<PackOptions>();
  Command &command = line.command("pack", "writes text or JSON lines as one token file");
  command.arguments("IN", options->inputs, "files of documents, as they are or compressed by gzip or zstd, in this order");
  command.option("-o,--output", "OUT.bin", options->output,
                 "the token file; appears when it is complete");
  command.option(
      "--format", "text|jsonl",
      [=](const std::string &value) -> Result<void> {
        if (value != "text" && value != "jsonl")
          return Error{fmt::format("--format={}: expected text or jsonl", value)};
        options->documents.format = value == "text" ? InputFormat::Text : InputFormat::JsonLines;
        return {};
      },
      "default: jsonl for .jsonl and .ndjson, else text");
  command.option(
      "--document-separator", "TEXT",
      [=](const std::string &value) -> Result<void> {
        auto separator = parseSeparator(value);
        LMC_TRY(separator);
        options->documents.separator = *separator;
        return {};
      },
      "what ends a document of a text; \\f \\n \\r \\t \\0 \\\\ \\xHH are understood; '' makes "
      "each file "
      "one document. Default: \\f (form feed)");
  command.option("--field", "NAME", options->documents.field,
                 "the field of each line of JSON that holds a document's text. Default: text");
  command.option(
      "--eod", "ID|none",
      [=](const std::string &value) -> Result<void> {
        if (value == "none") {
          options->eod = kNoEod;
          return {};
        }
        auto id = parseNumber("--eod", value, 0, 65535);
        if (!id)
          return Error{id.error().message + ", or none"};
        options->eod = static_cast<int32_t>(*id);
        return {};
      },
      "the token written once between documents. The same id at a document's edges is merged into "
      "it. An id above 255 widens the vocabulary. Default: 0 (the NUL byte)");
  command.option("--validation", "OUT2.bin", options->validation,
                 "a second file, for validation; its text is left out of OUT.bin");
  command.option(
      "--validation-fraction", "F",
      [=](const std::string &value) -> Result<void> {
        char *end = nullptr;
        double fraction = std::strtod(value.c_str(), &end);
        if (value.empty() || *end != '\0' || !(fraction > 0 && fraction < 1))
          return Error{
              fmt::format("--validation-fraction={}: expected a number between 0 and 1", value)};
        options->validationFraction = fraction;
        return {};
      },
      "the share of the tokens that OUT2.bin gets, between 0 and 1. It gets whole documents, "
      "chosen by a fixed hash, if their share is between F/2 and 3F/2, else the end of the text. "
      "Default: 0.05");
  command.footer("A token is a byte, so the vocabulary is 256.");
  return {&command, [=]() -> Result<void> {
            if (options->output.empty())
              return Error{"no --output given; see: lmc-data pack --help"};
            if (options->validationFraction && options->validation.empty())
              return Error{"--validation-fraction needs --validation=OUT2.bin"};
            return pack(*options);
          }};
}

} // namespace lmc
