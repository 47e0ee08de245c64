// lmc-data pack: converts documents to tokens: one per byte, or those of a tokenizer.
//
// Exactly one end-of-document token separates two documents. End-of-document tokens that the text
// has at the edges of a document are removed first, because two in a row would teach a model to
// produce one after the other. With a validation file the input is read twice: the first reading
// finds the lengths of the documents, on which the split into training and validation depends.

#include "runtime/data/TokenFileWriter.h"
#include "tools/lmc-data/Audit.h"
#include "tools/lmc-data/Commands.h"
#include "tools/lmc-data/DocumentTokens.h"
#include "tools/lmc-data/EncodedDocuments.h"
#include "tools/lmc-data/InputFiles.h"
#include "tools/lmc-data/PackReport.h"
#include "tools/lmc-data/TextInput.h"
#include "tools/lmc-data/TokenizerFiles.h"

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
// The longest document that a tokenizer is given: it stands in memory as text and as ids.
constexpr uint64_t kMaximumDocument = 1 << 30;

struct PackOptions {
  std::vector<std::string> inputs;
  std::string output, validation;
  std::optional<double> validationFraction; // default: 0.05
  DocumentOptions documents;
  std::optional<std::string> bos, eod; // as given
  std::string tokenizer;               // "": bytes are tokens
  SpecialTokens special = SpecialTokens::Text;
  uint32_t threads = 0; // 0: as many as there are processors
  bool strict = false;
  bool megatron = false; // the format that is written
};

// What PackOptions come to.
struct Packing {
  std::shared_ptr<const Tokenizer> tokenizer; // null: bytes are tokens
  std::string tokenizerPath;
  DocumentTokens borders;
  uint32_t vocabulary = 256;
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

  Result<void> endDocument(const DocumentPlace &, const DocumentPlace &) override {
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
  explicit TokenOutput(std::unique_ptr<TokenFileWriter> writer) : writer(std::move(writer)) {}
  // Must be called when all documents were received.
  virtual Result<void> complete() { return {}; }
  TokenFileWriter &file() { return *writer; }
  // The tokens of the text and of the documents that were left out because they had none.
  virtual EncodedDocuments::Counts counts() const { return {}; }

protected:
  std::unique_ptr<TokenFileWriter> writer;
};

// Writes a token for each byte.
class ByteOutput : public TokenOutput {
public:
  ByteOutput(std::unique_ptr<TokenFileWriter> writer, int32_t eod)
      : TokenOutput(std::move(writer)), eod(eod) {}

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

private:
  int32_t eod;
  bool between = false; // true between two documents
  std::vector<uint32_t> ids;
};

// Writes the tokens of a tokenizer.
class EncodedOutput : public TokenOutput {
public:
  EncodedOutput(std::unique_ptr<TokenFileWriter> file, std::unique_ptr<EncodedDocuments> documents)
      : TokenOutput(std::move(file)), documents(std::move(documents)) {}

  Result<void> text(std::string_view piece) override {
    document += piece;
    return {};
  }
  Result<void> endDocument() override {
    std::string whole;
    whole.swap(document);
    return documents->add(std::move(whole));
  }
  Result<void> complete() override { return documents->finish(); }
  EncodedDocuments::Counts counts() const override { return documents->counts(); }

private:
  std::unique_ptr<EncodedDocuments> documents;
  std::string document; // what has come of the current one
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
  // `wholeCharacters`: text is not cut inside of a character.
  Router(const Split &split, bool wholeCharacters, TokenOutput &training, TokenOutput &validation)
      : split(split), cut(split.cut), wholeCharacters(wholeCharacters), training(training),
        validation(validation) {}

  Result<void> text(std::string_view piece) override {
    if (!split.documents.empty())
      return current().text(piece);
    size_t first = std::min<uint64_t>(cut - std::min(cut, bytes), piece.size());
    if (wholeCharacters && bytes + first == cut)
      for (; first < piece.size() && (static_cast<uint8_t>(piece[first]) & 0xc0) == 0x80; ++cut)
        ++first;
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
    return bytes > cut ? validation.endDocument() : Result<void>();
  }

private:
  const Split &split;
  uint64_t cut; // bytes of text that go to the training file, if documents do not decide
  bool wholeCharacters;
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
  Utf8Checker utf8; // a part of a character could end a document inside another character
  if (utf8.check(separator) >= 0 || !utf8.complete())
    return Error{fmt::format("--document-separator={}: is not UTF-8", text)};
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
    if (!canReadAgain(input))
      return Error{fmt::format("{}: cannot be read twice, as --validation needs to split it; save "
                               "it to a file first",
                               nameOfInput(input))};
  return {};
}

// Loads the tokenizer, and finds what stands between documents.
Result<Packing> prepare(const PackOptions &options) {
  Packing packing;
  if (options.tokenizer.empty()) {
    if (options.bos)
      return Error{"--bos needs --tokenizer: without it a token is a byte"};
    packing.borders.between = 0;
    if (options.eod && *options.eod != "none") {
      auto id = parseNumber("--eod", *options.eod, 0, 65535);
      if (!id)
        return Error{id.error().message + ", or none"};
      packing.borders.between = static_cast<uint32_t>(*id);
    } else if (options.eod) {
      packing.borders.between.reset();
    }
    packing.borders.endOfDocument = packing.borders.between;
    packing.vocabulary = std::max(256u, packing.borders.between.value_or(0) + 1);
    return packing;
  }
  auto path = tokenizerFile(options.tokenizer);
  LMC_TRY(path);
  packing.tokenizerPath = *path;
  auto tokenizer = Tokenizer::open(*path);
  LMC_TRY(tokenizer);
  packing.tokenizer = *tokenizer;
  packing.vocabulary = packing.tokenizer->vocabulary();
  auto borders = documentTokens(*packing.tokenizer, *path, options.bos, options.eod);
  LMC_TRY(borders);
  packing.borders = std::move(*borders);
  return packing;
}

int32_t endOfDocument(const Packing &packing) {
  auto end = packing.borders.endOfDocument;
  return end ? static_cast<int32_t>(*end) : kNoEod;
}

Result<std::unique_ptr<TokenOutput>> createOutput(const PackOptions &options,
                                                  const Packing &packing, const std::string &path) {
  auto writer =
      TokenFileWriter::create(path, {packing.vocabulary, endOfDocument(packing), options.megatron});
  if (!writer)
    return writer.error();
  if (!packing.tokenizer)
    return std::unique_ptr<TokenOutput>(
        std::make_unique<ByteOutput>(std::move(*writer), endOfDocument(packing)));
  auto documents = EncodedDocuments::create(*packing.tokenizer, packing.borders, options.special,
                                            options.threads, **writer);
  if (!documents)
    return documents.error();
  return std::unique_ptr<TokenOutput>(
      std::make_unique<EncodedOutput>(std::move(*writer), std::move(*documents)));
}

// Writes the tokenizer's files beside a token file.
Result<void> keepTokenizer(const Packing &packing, const std::string &output) {
  return packing.tokenizer ? copyTokenizer(packing.tokenizerPath, output) : dropTokenizer(output);
}

PackReport reportOf(const PackOptions &options, const Packing &packing, const Audit &audit,
                    const EdgeCleaner &cleaner) {
  PackReport report;
  report.inputs = options.inputs;
  report.tokenizer = packing.tokenizerPath;
  report.endOfDocument = packing.borders.endOfDocument;
  report.beginOfDocument = packing.borders.before;
  report.findings = audit.findings();
  report.counts.merged = cleaner.merged;
  report.counts.inside = cleaner.inside;
  report.counts.empty = cleaner.empty;
  return report;
}

// Writes what is still missing when all documents were received.
Result<void> complete(const PackOptions &options, const Packing &packing, TokenOutput &output) {
  LMC_TRY(output.complete());
  // As Megatron's preprocess_data.py --append-eod has it, the last document ends like the others.
  if (options.megatron && packing.borders.between && output.file().documents() > 0)
    return output.file().append({&*packing.borders.between, 1});
  return {};
}

void addTo(PackReport &report, const std::string &path, TokenOutput &output,
           const std::string &part) {
  report.files.push_back({path, output.file().tokens(), output.file().documents(), part});
  report.counts.add(output.counts());
}

// Gives the files their names, when all are complete.
Result<void> finish(const PackOptions &options, const Packing &packing, const PackReport &report,
                    const std::vector<TokenOutput *> &outputs) {
  if (options.strict)
    LMC_TRY(report.checkStrict());
  // All files are completed before any gets its name: otherwise an interrupted run could leave
  // files of two runs, which might have text in common.
  for (TokenOutput *output : outputs)
    LMC_TRY(output->file().finish());
  for (const PackReport::File &file : report.files)
    LMC_TRY(keepTokenizer(packing, file.path));
  LMC_TRY(report.write());
  for (TokenOutput *output : outputs)
    LMC_TRY(output->file().commit());
  report.print();
  return {};
}

// Returns the options with the files that the inputs name.
Result<PackOptions> withInputs(PackOptions options) {
  auto inputs = findInputs(options.inputs, options.documents);
  LMC_TRY(inputs);
  options.inputs = std::move(*inputs);
  if (!options.tokenizer.empty())
    options.documents.maximumBytes = kMaximumDocument;
  return options;
}

Result<void> pack(const PackOptions &given) {
  auto found = withInputs(given);
  LMC_TRY(found);
  const PackOptions &options = *found;
  LMC_TRY(checkPaths(options));
  auto packing = prepare(options);
  LMC_TRY(packing);
  // Bytes that are end-of-document tokens; a tokenizer's are found in its ids.
  const int32_t cleaned = packing->tokenizer ? kNoEod : endOfDocument(*packing);
  auto output = createOutput(options, *packing, options.output);
  if (!output)
    return output.error();
  if (options.validation.empty()) {
    EdgeCleaner cleaner(cleaned, **output);
    Audit audit(cleaner);
    LMC_TRY(readInputs(options.inputs, options.documents, "packing", audit));
    LMC_TRY(complete(options, *packing, **output));
    PackReport report = reportOf(options, *packing, audit, cleaner);
    addTo(report, options.output, **output, "");
    return finish(options, *packing, report, {output->get()});
  }

  auto validation = createOutput(options, *packing, options.validation);
  if (!validation)
    return validation.error();
  DocumentLengths measured;
  EdgeCleaner measuring(cleaned, measured);
  LMC_TRY(readInputs(options.inputs, options.documents, "measuring documents", measuring));
  uint64_t total = std::accumulate(measured.lengths.begin(), measured.lengths.end(), uint64_t(0));
  if (total < 2)
    return Error{fmt::format("{}: {} bytes of text, nothing to share with a validation file",
                             options.inputs[0], total)};
  const Split split =
      chooseSplit(measured.lengths, total, options.validationFraction.value_or(0.05));
  Router router(split, packing->tokenizer != nullptr, **output, **validation);
  EdgeCleaner cleaner(cleaned, router);
  Audit audit(cleaner);
  LMC_TRY(readInputs(options.inputs, options.documents, "packing", audit));
  LMC_TRY(complete(options, *packing, **output));
  LMC_TRY(complete(options, *packing, **validation));
  PackReport report = reportOf(options, *packing, audit, cleaner);
  addTo(report, options.output, **output, "");
  addTo(report, options.validation, **validation,
        split.documents.empty() ? "the end of the text" : "whole documents");
  return finish(options, *packing, report, {output->get(), validation->get()});
}

} // namespace

DataCommand addPackCommand(CommandLine &line) {
  auto options = std::make_shared<PackOptions>();
  Command &command = line.command("pack", "writes text, JSON lines or Parquet as one token file");
  command.arguments(
      "IN", options->inputs,
      "files of documents, as they are or compressed by gzip or zstd, in this order; "
      "folders, read as all files below them with a name that says a format, sorted by "
      "path; patterns in quotes ('data/*.jsonl'), also sorted; - is standard input");
  command.option("-o,--output", "OUT.bin", options->output,
                 "the token file; appears when it is complete");
  command.option(
      "--format", "text|jsonl|parquet",
      [=](const std::string &value) -> Result<void> {
        auto format = parseInputFormat(value);
        if (!format)
          return Error{fmt::format("--format={}: {}", value, format.error().message)};
        options->documents.format = *format;
        return {};
      },
      "what the files are. Default: jsonl for .jsonl and .ndjson, parquet for .parquet, else text");
  command.option(
      "--document-separator", "TEXT",
      [=](const std::string &value) -> Result<void> {
        auto separator = parseSeparator(value);
        LMC_TRY(separator);
        options->documents.separator = *separator;
        return {};
      },
      "what ends a document of a text; \\f \\n \\r \\t \\0 \\\\ \\xHH are understood; '' makes "
      "each file one document. With --tokenizer a document has at most 1 GiB. Default: \\f (form "
      "feed)");
  command.option(
      "--field", "NAME", options->documents.field,
      "the field of each line of JSON, or the column of Parquet, that holds a document's "
      "text. Default: text");
  command.option(
      "--nulls", "error|empty",
      [=](const std::string &value) -> Result<void> {
        if (value != "error" && value != "empty")
          return Error{fmt::format("--nulls={}: expected error or empty", value)};
        options->documents.nullIsEmpty = value == "empty";
        return {};
      },
      "what a null is in the place of a text. Default: error");
  command.option(
      "--tokenizer", "FILE", options->tokenizer,
      "a tokenizer.json of Hugging Face, a .model of SentencePiece, or a folder with one. "
      "Default: a token is a byte");
  const auto keep = [&command](const char *name, const char *placeholder,
                               std::optional<std::string> &value, const char *description) {
    command.option(
        name, placeholder,
        [&value](const std::string &text) -> Result<void> {
          value = text;
          return {};
        },
        description);
  };
  keep("--bos", "TOKEN|ID|none", options->bos,
       "the token that begins each document; none: also without those that the tokenizer itself "
       "puts there. Default: what the files beside the tokenizer say");
  keep("--eod", "TOKEN|ID|none", options->eod,
       "the token written once between documents. The same token at a document's edges is merged "
       "into it; none: also without those that the tokenizer itself puts after a document. "
       "Default: what the files beside the tokenizer say; for bytes 0 (the NUL byte)");
  command.option(
      "--special-tokens", "text|parse|error",
      [=](const std::string &value) -> Result<void> {
        auto mode = parseSpecialTokens(value);
        if (!mode)
          return Error{fmt::format("--special-tokens={}", mode.error().message)};
        options->special = *mode;
        return {};
      },
      "what a text becomes that spells a special token. Default: text, so that no text can forge "
      "the end of a document");
  command.option(
      "--invalid-utf8", "error|replace",
      [=](const std::string &value) -> Result<void> {
        if (value != "error" && value != "replace")
          return Error{fmt::format("--invalid-utf8={}: expected error or replace", value)};
        options->documents.replaceInvalid = value == "replace";
        return {};
      },
      "what becomes of bytes that are not UTF-8: an error, or U+FFFD. Default: error");
  command.option(
      "--threads", "N",
      [=](const std::string &value) -> Result<void> {
        auto number = parseNumber("--threads", value, 1, 1024);
        LMC_TRY(number);
        options->threads = static_cast<uint32_t>(*number);
        return {};
      },
      "threads of the tokenizer; they do not change the result. Default: one per processor");
  command.option(
      "--write", "lmc|megatron",
      [=](const std::string &value) -> Result<void> {
        if (value != "lmc" && value != "megatron")
          return Error{fmt::format("--write={}: expected lmc or megatron", value)};
        options->megatron = value == "megatron";
        return {};
      },
      "the format of OUT.bin: lmc's, or Megatron's OUT.bin with OUT.idx, in which the last "
      "document "
      "ends with the --eod too. Default: lmc");
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
  command.flag("--strict", options->strict,
               "nothing is written if the audit finds something: an end of document that the text "
               "has itself, empty or repeated documents, control characters or U+FFFD, special "
               "tokens in the text, unknown tokens");
  command.footer(
      "Without --tokenizer a token is a byte, so the vocabulary is 256. The tokenizer's files are\n"
      "kept beside the token file, in the folder OUT.bin.tokenizer, and what the audit found in\n"
      "OUT.bin.audit.json.");
  return {&command, [=]() -> Result<void> {
            if (options->output.empty())
              return Error{"no --output given; see: lmc-data pack --help"};
            if (options->validationFraction && options->validation.empty())
              return Error{"--validation-fraction needs --validation=OUT2.bin"};
            return pack(*options);
          }};
}

} // namespace lmc
