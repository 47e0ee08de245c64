// lmc-data pack: converts documents to tokens. A token is a byte, or a token of a tokenizer.
//
// Exactly one end-of-document token separates two documents, because two in a row would teach a
// model to produce two. With a validation file, the input is read twice: the first reading finds
// the lengths of the documents, which the split into training and validation data needs.

#include "ground/support/Number.h"
#include "runtime/checkpoint/RunTokenizer.h"
#include "runtime/data/TokenFormats.h"
#include "tools/lmc-data/Audit.h"
#include "tools/lmc-data/Commands.h"
#include "tools/lmc-data/EncodedDocuments.h"
#include "tools/lmc-data/PackCommit.h"
#include "tools/lmc-data/PackJournal.h"
#include "tools/lmc-data/PackReport.h"
#include "tools/lmc-data/TokenizerFiles.h"
#include "tools/lmc-data/input/DocumentTokens.h"
#include "tools/lmc-data/input/InputFiles.h"
#include "tools/lmc-data/input/TextInput.h"
#include "tools/lmc-data/write/TokenFileWriter.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iterator>
#include <numeric>
#include <utility>

namespace lmc {

namespace {

constexpr int32_t kNoEod = -1;

struct PackOptions {
  std::vector<std::string> inputs;
  std::string output, validation;
  std::optional<double> validationFraction; // share of the text; default: 0.05
  DocumentOptions documents;
  std::optional<std::string> bos, eod; // the options --bos and --eod as the user gave them
  std::string tokenizer;               // "": no tokenizer, each token is a byte
  std::optional<SpecialTokens> special;
  uint32_t threads = 0; // 0: one per processor
  bool strict = false;
  bool megatron = false;    // true: writes token files in Megatron's format
  std::optional<bool> anew; // true: an interrupted pack is not resumed; nullopt: it is resumed if
                            // all inputs can be read a second time
  double saveInterval = 10; // seconds between two saves of the state
};

// The tokenizer and the border tokens, as PackOptions describe them.
struct Packing {
  std::shared_ptr<const Tokenizer> tokenizer; // null: no tokenizer, each token is a byte
  std::string tokenizerPath;
  uint64_t tokenizerHash = kBytesAsTokens;
  DocumentTokens borders;
  uint32_t vocabulary = 256;
  std::vector<uint16_t> bytesOfTokens; // bytes of each id's text, as in the token file
};

// Receives documents without the end-of-document bytes at their edges. No piece is empty.
struct CleanReceiver {
  virtual ~CleanReceiver() = default;
  virtual Result<void> text(std::string_view piece) = 0;
  virtual Result<void> endDocument(const DocumentName &name) = 0;
};

// Removes end-of-document ids at the edges of documents, and documents without other tokens.
class EdgeCleaner : public DocumentReceiver {
public:
  // `before` is the number of documents that earlier processes of an interrupted pack have read.
  EdgeCleaner(int32_t eod, uint64_t before, CleanReceiver &next)
      : eod(eod), next(next), ordinal(before) {}

  EncodedDocuments::Counts found; // counts only `merged`, `inside` and `empty`

  Result<void> text(std::string_view piece) override {
    if (eod < 0 || eod > 255)
      return pass(piece);
    const char end = static_cast<char>(eod);
    if (!started) {
      size_t first = std::min(piece.find_first_not_of(end), piece.size());
      merged += first;
      piece.remove_prefix(first);
    }
    size_t body = piece.find_last_not_of(end) + 1; // 0 if there are only end-of-document ids
    if (body > 0) {
      // Text follows the `held` end-of-document ids, so these ids are inside the document.
      inside += held + std::count(piece.begin(), piece.begin() + body, end);
      for (; held > 0; --held)
        LMC_TRY(pass({&end, 1}));
      LMC_TRY(pass(piece.substr(0, body)));
    }
    held += piece.size() - body;
    return {};
  }

  void beginFile(const std::string &path, InputFormat format) override {
    name.path = path;
    name.format = format;
  }
  Result<void> endDocument(const DocumentPlace &begin, const DocumentPlace &) override {
    name.number = begin.in(name.format);
    name.ordinal = ordinal++;
    found.merged.add(std::exchange(merged, 0) + std::exchange(held, 0), name);
    found.inside.add(std::exchange(inside, 0), name);
    found.empty.add(!started, name);
    return std::exchange(started, false) ? next.endDocument(name) : Result<void>();
  }

private:
  DocumentName name;
  int32_t eod;
  CleanReceiver &next;
  uint64_t ordinal; // number of the current document
  // Of the current document:
  bool started = false; // true if the document has a token
  uint64_t merged = 0;  // end-of-document ids removed at its edges
  uint64_t inside = 0;  // end-of-document ids kept inside it
  uint64_t held = 0;    // end-of-document ids that may be at the document's end

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
  // Passes all text received so far to the writer. More documents may follow.
  virtual Result<void> flush() { return {}; }
  TokenFileWriter &file() { return *writer; }
  // Returns the numbers of tokens, and of documents left out because they have no tokens.
  virtual EncodedDocuments::Counts counts() const { return {}; }

protected:
  std::unique_ptr<TokenFileWriter> writer;
};

class ByteOutput : public TokenOutput {
public:
  ByteOutput(std::unique_ptr<TokenFileWriter> writer, int32_t eod)
      : TokenOutput(std::move(writer)), eod(eod), between(file().documents() > 0) {}

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
  Result<void> endDocument(const DocumentName &) override {
    between = true;
    return {};
  }

private:
  int32_t eod;
  bool between; // true between two documents
  std::vector<uint32_t> ids;
};

class EncodedOutput : public TokenOutput {
public:
  EncodedOutput(std::unique_ptr<TokenFileWriter> file, std::unique_ptr<EncodedDocuments> documents)
      : TokenOutput(std::move(file)), documents(std::move(documents)) {}

  Result<void> text(std::string_view piece) override {
    document += piece;
    return {};
  }
  Result<void> endDocument(const DocumentName &name) override {
    std::string whole;
    whole.swap(document);
    return documents->add(std::move(whole), name);
  }
  Result<void> flush() override { return documents->finish(); }
  EncodedDocuments::Counts counts() const override { return documents->counts(); }

private:
  std::unique_ptr<EncodedDocuments> documents;
  std::string document; // text of the current document so far
};

// Computes the lengths of the documents in bytes, during the first reading of the input.
struct DocumentLengths : CleanReceiver {
  std::vector<uint64_t> lengths;
  uint64_t current = 0;

  Result<void> text(std::string_view piece) override {
    current += piece.size();
    return {};
  }
  Result<void> endDocument(const DocumentName &) override {
    lengths.push_back(current);
    current = 0;
    return {};
  }
};

// Says which text goes to the validation file: whole documents, or all text after a position.
struct Split {
  std::vector<bool> documents; // true for documents of the validation file; empty: see `cut`
  uint64_t cut = 0;            // if `documents` is empty: bytes of text for the training file
};

// Chooses about `fraction` of the text as validation data. `total` is the sum of `lengths` in
// bytes, and is at least 2.
Split splitOf(const std::vector<uint64_t> &lengths, uint64_t total, double fraction) {
  Split split;
  const double target = fraction * total;
  split.cut = total - std::clamp<uint64_t>(std::llround(target), 1, total - 1);
  // Takes documents in the order of a hash of their index. Stops at the first document that would
  // increase the distance between the sum of the lengths and the target.
  std::vector<uint64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  auto hash = [](uint64_t document) { return XXH64(&document, sizeof(document), 0); };
  std::ranges::sort(order, {}, hash);
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

// Sends each piece of text to the training or the validation file.
class Router : public CleanReceiver {
public:
  // If `wholeCharacters` is true, the split does not cut inside a character.
  Router(const Split &split, bool wholeCharacters, TokenOutput &training, TokenOutput &validation)
      : at{.cut = split.cut}, split(split), wholeCharacters(wholeCharacters), training(training),
        validation(validation) {}

  // The present position in the text. Without Split::documents, bytes before `cut` go to training.
  SplitPosition at;

  Result<void> text(std::string_view piece) override {
    if (!split.documents.empty())
      return current().text(piece);
    auto &[document, bytes, cut] = at;
    size_t first = std::min<uint64_t>(cut - std::min(cut, bytes), piece.size());
    if (wholeCharacters && bytes + first == cut)
      for (; first < piece.size() && (static_cast<uint8_t>(piece[first]) & 0xc0) == 0x80; ++cut)
        ++first;
    bytes += piece.size();
    toTraining |= first > 0;
    toValidation |= first < piece.size();
    if (first > 0)
      LMC_TRY(training.text(piece.substr(0, first)));
    return first < piece.size() ? validation.text(piece.substr(first)) : Result<void>();
  }
  Result<void> endDocument(const DocumentName &name) override {
    if (!split.documents.empty()) {
      LMC_TRY(current().endDocument(name));
      ++at.document;
      return {};
    }
    if (std::exchange(toTraining, false))
      LMC_TRY(training.endDocument(name));
    return std::exchange(toValidation, false) ? validation.endDocument(name) : Result<void>();
  }

private:
  const Split &split;
  bool wholeCharacters;
  TokenOutput &training, &validation;
  bool toTraining = false, toValidation = false; // true if a part of the document went to the file

  TokenOutput &current() {
    // The training file gets documents that were added to an input between the two readings.
    bool held = at.document < split.documents.size() && split.documents[at.document];
    return held ? validation : training;
  }
};

Result<void> checkPaths(const PackOptions &options) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  for (const std::string &output : {options.output, options.validation})
    for (const std::string &input : options.inputs)
      if (!output.empty() && fs::equivalent(input, output, ignored))
        return userError("{}: is both input and output; give --output another name", output);
  for (const std::string &input : options.inputs)
    if (!options.anew.value_or(true) && !canReadAgain(input))
      return userError("{}: cannot be resumed, because what was read of it is gone; save it to a "
                       "file first, or give --resume=none",
                       nameOfInput(input));
  if (options.validation.empty())
    return {};
  if (options.validation == options.output ||
      fs::equivalent(options.validation, options.output, ignored))
    return userError("{}: --output and --validation are the same file", options.output);
  for (const std::string &input : options.inputs)
    if (!canReadAgain(input))
      return userError(
          "{}: cannot be read twice, as --validation needs to split it; save it to a file first",
          nameOfInput(input));
  return {};
}

// Finds how many bytes of text each token stands for. A border token stands for 0 bytes.
Result<void> findBytes(Packing &packing) {
  std::vector<uint16_t> &bytes = packing.bytesOfTokens;
  bytes.assign(packing.vocabulary, 1); // without a tokenizer
  if (packing.tokenizer) {
    LMC_LET(known, packing.tokenizer->bytesOfTokens());
    std::ranges::transform(*known, bytes.begin(), [](const std::optional<uint64_t> &size) {
      return uint16_t(std::min<uint64_t>(size.value_or(kUnknownBytes), kUnknownBytes));
    });
  }
  const DocumentTokens &borders = packing.borders;
  for (const auto *ids : {&borders.before, &borders.after})
    for (uint32_t id : *ids)
      bytes[id] = 0;
  if (borders.between)
    bytes[*borders.between] = 0;
  return {};
}

Result<Packing> prepare(const PackOptions &options) {
  Packing packing;
  if (options.tokenizer.empty()) {
    if (const char *given = options.threads   ? "--threads"
                            : options.special ? "--special-tokens"
                            : options.bos     ? "--bos"
                                              : nullptr)
      return userError("{} needs --tokenizer: without it a token is a byte", given);
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
  LMC_LET(path, tokenizerFile(options.tokenizer));
  packing.tokenizerPath = *path;
  LMC_LET(hash, tokenizerHash(*path));
  packing.tokenizerHash = *hash;
  LMC_LET(tokenizer, Tokenizer::open(*path));
  packing.tokenizer = *tokenizer;
  packing.vocabulary = packing.tokenizer->vocabulary();
  LMC_LET(borders, documentTokens(*packing.tokenizer, *path, options.bos, options.eod));
  packing.borders = std::move(*borders);
  return packing;
}

int32_t endOfDocument(const Packing &packing) {
  auto end = packing.borders.endOfDocument;
  return end ? static_cast<int32_t>(*end) : kNoEod;
}

// Opens a token file. If `saved` is not null, continues the file from that state.
Result<std::unique_ptr<TokenOutput>> openOutput(const PackOptions &options, const Packing &packing,
                                                const std::shared_ptr<PartialFolder> &folder,
                                                const TokenFileWriter::Saved *saved) {
  const TokenFileWriter::Options format{packing.vocabulary, endOfDocument(packing),
                                        options.megatron, packing.bytesOfTokens,
                                        packing.tokenizerHash};
  LMC_LET(writer, TokenFileWriter::create(folder, format, saved));
  if (!packing.tokenizer)
    return std::unique_ptr<TokenOutput>(
        std::make_unique<ByteOutput>(std::move(*writer), endOfDocument(packing)));
  LMC_LET(documents, EncodedDocuments::create(*packing.tokenizer, packing.borders,
                                              options.special.value_or(SpecialTokens::Text),
                                              options.threads, **writer));
  return std::unique_ptr<TokenOutput>(
      std::make_unique<EncodedOutput>(std::move(*writer), std::move(*documents)));
}

// Returns all inputs and options on which the contents of the token files depend.
nlohmann::json identityOf(const PackOptions &options, const Packing &packing,
                          const std::vector<InputStamp> &stamps) {
  const DocumentOptions &documents = options.documents;
  nlohmann::json inputs, format;
  std::error_code ignored;
  for (size_t i = 0; i < stamps.size(); ++i)
    inputs.push_back({std::filesystem::absolute(options.inputs[i], ignored).string(),
                      stamps[i].size, stamps[i].seconds, stamps[i].nanoseconds});
  if (documents.format)
    format = static_cast<int>(*documents.format);
  const DocumentTokens &borders = packing.borders;
  return {{"release", identityOfRelease()},
          {"inputs", inputs},
          {"format", format},
          {"separator", XXH3_64bits(documents.separator.data(), documents.separator.size())},
          {"field", documents.field},
          {"nulls", documents.nullIsEmpty},
          {"replace", documents.replaceInvalid},
          {"special", static_cast<int>(options.special.value_or(SpecialTokens::Text))},
          {"megatron", options.megatron},
          {"validation", options.validation},
          {"fraction", options.validationFraction.value_or(0)},
          {"tokenizer", packing.tokenizerHash},
          {"borders",
           {borders.before, borders.after, int64_t(borders.between.value_or(-1)),
            endOfDocument(packing)}}};
}

// Calls `save` between two documents, at most once in `seconds` seconds.
class Saver : public DocumentReceiver {
public:
  using Save = std::function<Result<void>(uint64_t file, const DocumentPlace &place)>;

  Saver(DocumentReceiver &next, uint64_t first, double seconds, Save save)
      : next(next), file(first), interval(seconds), save(std::move(save)) {}

  void beginFile(const std::string &path, InputFormat format) override {
    file += begun;
    begun = true;
    next.beginFile(path, format);
  }
  Result<void> text(std::string_view piece) override { return next.text(piece); }
  Result<void> endDocument(const DocumentPlace &begin, const DocumentPlace &end) override {
    LMC_TRY(next.endDocument(begin, end));
    if (Clock::now() - last < interval)
      return {};
    LMC_TRY(save(file, end));
    last = Clock::now();
    return {};
  }

private:
  using Clock = std::chrono::steady_clock;
  DocumentReceiver &next;
  uint64_t file;
  bool begun = false; // true if a file was begun
  std::chrono::duration<double> interval;
  Save save;
  Clock::time_point last = Clock::now();
};

class Pack {
public:
  Pack(const PackOptions &options, Packing packing)
      : options(options), packing(std::move(packing)), stamps(stampsOf(options.inputs)),
        identity(identityOf(options, this->packing, stamps)) {
    paths.push_back(options.output);
    if (!options.validation.empty())
      paths.push_back(options.validation);
    // With a tokenizer, EdgeCleaner removes no byte: EncodedDocuments removes end-of-document ids.
    cleaned = this->packing.tokenizer ? kNoEod : endOfDocument(this->packing);
  }

  Result<void> run() {
    const bool resumable =
        !options.anew.value_or(!std::ranges::all_of(options.inputs, canReadAgain));
    LMC_LET(done, lockOutputs());
    if (*done && resumable)
      return {};
    LMC_TRY(openOutputs(resumable));
    for (size_t i = 0; i < paths.size() && packing.tokenizer; ++i) {
      LMC_LET(copy, TokenizerCopy::make(packing.tokenizerPath, paths[i]));
      tokenizers.push_back(std::move(*copy));
    }
    Split split;
    std::unique_ptr<Router> router;
    if (outputs.size() > 1) {
      LMC_TRY(chooseSplit(split));
      router =
          std::make_unique<Router>(split, packing.tokenizer != nullptr, *outputs[0], *outputs[1]);
      if (saved)
        router->at = saved->split;
    }
    EdgeCleaner cleaner(cleaned, saved ? saved->audit.findings.documents : 0,
                        router ? *router : static_cast<CleanReceiver &>(*outputs[0]));
    Audit audit(cleaner);
    if (resumable)
      LMC_TRY(prepareAudit(audit));
    const uint64_t first = saved ? saved->file : 0;
    Saver saver(audit, first, options.saveInterval,
                [&](uint64_t file, const DocumentPlace &place) -> Result<void> {
                  return resumable ? save(file, place, cleaner, audit, router.get())
                                   : Result<void>();
                });
    LMC_TRY(readInputs(options.inputs, stamps, options.documents, "packing", saver, first,
                       saved ? saved->place : DocumentPlace()));
    for (auto &output : outputs)
      LMC_TRY(complete(*output));
    return finish(cleaner, audit, split);
  }

private:
  const PackOptions &options;
  const Packing packing;
  const std::vector<InputStamp> stamps; // each input's inode, size and mtime before it is read
  const nlohmann::json identity;        // everything on which the token files depend
  std::vector<std::string> paths; // paths of the token files: training, validation
  int32_t cleaned;
  PartialFolders folders; // one for each token file
  std::vector<std::unique_ptr<TokenOutput>> outputs;
  std::vector<TokenizerCopy> tokenizers; // one for each token file; empty without a tokenizer
  std::optional<PackState> saved;        // the state that an interrupted pack has left

  // Locks the token files. Completes each pack of these files that was interrupted while it renamed
  // them. Returns true if such a pack had the same inputs and options as this one.
  Result<bool> lockOutputs() {
    for (const std::string &path : paths) {
      LMC_LET(folder, PartialFolder::lock(path));
      folders.push_back(std::move(*folder));
    }
    bool isThis = false;
    for (const auto &folder : folders) {
      LMC_LET(completed, completePack(*folder));
      if (!*completed)
        continue;
      fmt::print(stderr,
                 "note: {}: was complete, and has its name only now: the pack was "
                 "interrupted at its end\n",
                 folder->target());
      isThis = (*completed)->identity == finishedIdentity();
      if (isThis)
        fmt::print("{}", (*completed)->report);
    }
    if (isThis)
      for (const auto &folder : folders)
        folder->remove();
    return isThis;
  }

  // Returns a value that is equal for two packs that write the same files and the same report.
  nlohmann::json finishedIdentity() const { return {identity, options.strict}; }

  // Opens the token files that an interrupted pack has left, or new ones.
  Result<void> openOutputs(bool resumable) {
    std::string why;
    if (resumable)
      saved = readPackState(options.output, identity, why);
    if (saved)
      if (Result<void> opened = openEach(); !opened) {
        why = opened.error().message;
        saved.reset();
      }
    if (!saved)
      LMC_TRY(openEach());
    if (saved)
      fmt::print(stderr, "note: {}: goes on after {} tokens that an interrupted pack has left\n",
                 paths[0], saved->outputs[0].tokens);
    else if (!why.empty())
      fmt::print(stderr, "note: {}: what an interrupted pack has left is not gone on with: {}\n",
                 paths[0], why);
    return {};
  }

  Result<void> openEach() {
    outputs.clear();
    for (const auto &folder : folders) {
      LMC_LET(output, openOutput(options, packing, folder,
                                 saved ? &saved->outputs.at(outputs.size()) : nullptr));
      outputs.push_back(std::move(*output));
    }
    return {};
  }

  Result<void> chooseSplit(Split &split) const {
    DocumentLengths measured;
    EdgeCleaner measuring(cleaned, 0, measured);
    LMC_TRY(
        readInputs(options.inputs, stamps, options.documents, "measuring documents", measuring));
    uint64_t total = std::accumulate(measured.lengths.begin(), measured.lengths.end(), uint64_t(0));
    if (total < 2)
      return userError("{}: {} bytes of text, nothing to share with a validation file",
                       options.inputs[0], total);
    split = splitOf(measured.lengths, total, options.validationFraction.value_or(0.05));
    return {};
  }

  Result<void> prepareAudit(Audit &audit) const {
    const std::string folder = partialFolder(paths[0]);
    if (!saved)
      return audit.keepIn(folder);
    std::vector<std::pair<std::string, InputFormat>> before;
    for (size_t i = 0; i < saved->file; ++i)
      before.emplace_back(options.inputs.at(i), formatOf(options.inputs[i], options.documents));
    return audit.resume(folder, saved->audit, before);
  }

  // Returns the counts of this process plus those of earlier, interrupted processes of this pack.
  EncodedDocuments::Counts counts(const EdgeCleaner &cleaner) const {
    EncodedDocuments::Counts counts;
    if (saved)
      counts = saved->counts;
    counts.add(cleaner.found);
    for (const auto &output : outputs)
      counts.add(output->counts());
    return counts;
  }

  Result<void> save(uint64_t file, const DocumentPlace &place, const EdgeCleaner &cleaner,
                    Audit &audit, const Router *router) {
    PackState state;
    state.file = file;
    state.place = place;
    for (auto &output : outputs) {
      LMC_TRY(output->flush());
      LMC_LET(written, output->file().save());
      state.outputs.push_back(*written);
    }
    LMC_LET(audited, audit.save());
    state.audit = *audited;
    state.counts = counts(cleaner);
    if (router)
      state.split = router->at;
    return writePackState(options.output, identity, state);
  }

  // Writes the rest of a file, after all documents were received.
  Result<void> complete(TokenOutput &output) const {
    LMC_TRY(output.flush());
    // `between` also ends the last document, as with Megatron's preprocess_data.py --append-eod.
    if (options.megatron && packing.borders.between && output.file().documents() > 0)
      return output.file().append({&*packing.borders.between, 1});
    return {};
  }

  // Reports the results, and gives the files their final names.
  Result<void> finish(const EdgeCleaner &cleaner, const Audit &audit, const Split &split) {
    PackReport report;
    report.inputs = options.inputs;
    report.tokenizer = packing.tokenizerPath;
    report.endOfDocument = packing.borders.endOfDocument;
    report.beginOfDocument = packing.borders.before;
    report.findings = audit.findings();
    report.counts = counts(cleaner);
    const char *part = split.documents.empty() ? "the end of the text" : "whole documents";
    for (size_t i = 0; i < paths.size(); ++i)
      report.files.push_back({paths[i], outputs[i]->file().tokens(), outputs[i]->file().documents(),
                              i == 0 ? "" : part});
    if (options.strict)
      LMC_TRY(report.checkStrict());
    // Completes all files before any gets its final name. Otherwise an interruption could leave one
    // pack's training file beside another pack's validation file, and the two could share text.
    for (auto &output : outputs)
      LMC_TRY(output->file().finish());
    LMC_TRY(report.write(folders[0]->nameOf("audit.json")));
    std::vector<Rename> renames = {{folders[0]->nameOf("audit.json"), paths[0] + ".audit.json"}};
    for (auto &output : outputs) {
      LMC_LET(files, output->file().release());
      std::ranges::move(*files, std::back_inserter(renames));
    }
    for (size_t i = 0; i < paths.size(); ++i)
      renames.push_back(tokenizers.empty() ? withoutTokenizer(paths[i]) : tokenizers[i].release());
    LMC_TRY(commitPack(folders, renames, {finishedIdentity(), report.text()}));
    fmt::print("{}", report.text());
    return {};
  }
};

Result<void> pack(PackOptions options) {
  LMC_LET(inputs, findInputs(options.inputs, options.documents));
  options.inputs = std::move(*inputs);
  if (!options.tokenizer.empty())
    options.documents.maximumBytes = kMaximumDocument;
  LMC_TRY(checkPaths(options));
  LMC_LET(packing, prepare(options));
  LMC_TRY(findBytes(*packing));
  return Pack(options, std::move(*packing)).run();
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
  addDocumentOptions(command, options->documents);
  command.option(
      "--tokenizer", "FILE", options->tokenizer,
      "a tokenizer.json of Hugging Face, a .model of SentencePiece, or a folder with one. "
      "Default: a token is a byte");
  const auto asGiven = [](const std::string &text) { return Result<std::string>(text); };
  addParsedOption(
      command, "--bos", "TOKEN|ID|none", asGiven, options->bos,
      "the token that begins each document; none: also without those that the tokenizer itself "
      "puts there. Default: what the files beside the tokenizer say");
  addParsedOption(
      command, "--eod", "TOKEN|ID|none", asGiven, options->eod,
      "the token written once between documents. The same token at a document's edges is merged "
      "into it; none: also without those that the tokenizer itself puts after a document. "
      "Default: what the files beside the tokenizer say; for bytes 0 (the NUL byte)");
  command.option(
      "--special-tokens", "text|parse|error",
      [=](const std::string &value) -> Result<void> {
        auto mode = parseSpecialTokens(value);
        if (!mode)
          return userError("--special-tokens={}", mode.error().message);
        options->special = *mode;
        return {};
      },
      "what a text becomes that spells a special token. Default: text, so that no text can forge "
      "the end of a document");
  command.number(
      "--threads", "N", 1, 1024, options->threads,
      "threads of the tokenizer; they do not change the result. Default: one per processor");
  command.either(
      "--write", "lmc", "megatron", options->megatron,
      "the format of OUT.bin: lmc's, or Megatron's OUT.bin with OUT.idx, in which the last "
      "document "
      "ends with the --eod too. Default: lmc");
  command.option("--validation", "OUT2.bin", options->validation,
                 "a second file, for validation; its text is left out of OUT.bin");
  addParsedOption(
      command, "--validation-fraction", "F",
      [](const std::string &text) -> Result<double> {
        const double fraction = parseDouble(text).value_or(0);
        if (!(fraction > 0 && fraction < 1))
          return Error{"expected a number between 0 and 1"};
        return fraction;
      },
      options->validationFraction,
      "the share of the tokens that OUT2.bin gets, between 0 and 1. It gets whole documents, "
      "chosen by a fixed hash, if their share is between F/2 and 3F/2, else the end of the text. "
      "Default: 0.05");
  command.either(
      "--resume", "auto", "none", options->anew,
      "auto: goes on where a pack of the same inputs and options was interrupted, with the same "
      "result; not possible with standard input. Default: auto, where it is possible");
  command.number(
      "--save-interval", "SECONDS", 0, 86400, options->saveInterval,
      "the time after which an interrupted pack may have to do work again; 0 saves after each "
      "document. Default: 10");
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
