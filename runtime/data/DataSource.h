// The tokens that a run is trained on, in order: a function of the seed and the position in tokens.
//
// Each file is cut into blocks of `shuffleBlock` tokens; tokens at its end that fill no block are
// left out. The stream of a source is one epoch after the other, and an epoch is all blocks of all
// files of the source in a permuted order, with the key (seed of the source, epoch). The stream of
// a run with several sources has their blocks in the order of Mixture, and those of each source in
// the order of the source's stream. The seed of a source is the XXH64 of its name, with the seed of
// the run; if the source has no name, it is the seed of the run. Sources therefore do not depend on
// each other.
//
// A row of sequence_length tokens is read from any position of the stream, so that it may end one
// block and begin the next. With the usual block, which is one row, every row is a window of a
// file.
//
// With `bestFit` a block is not a piece of a file but a window of whole documents (BestFit.h). The
// positions behind its last document are padding: id 0, without a loss.
//
// The stream does not depend on sequence_length, batch size or ranks. A run that is resumed with
// others goes on at the next token that it has not read.
#pragma once

#include "ground/support/Result.h"
#include "runtime/data/BestFit.h"
#include "runtime/data/Mixture.h"
#include "runtime/data/TokenFile.h"

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace lmc {

inline constexpr int32_t kIgnoredTarget = -100; // marks a position without a loss

struct SourceOptions {
  std::string name;               // "": the source is not mixed with others
  std::string key;                // setting that errors name: "data.source.web.paths"
  std::vector<std::string> paths; // files or globs; globs expand in sorted order
  double weight = 1;              // share of the blocks, relative to the weights of all sources
  double maxEpochs = 0; // maximum number of times that a run reads the source; 0: no limit
};

struct DataOptions {
  std::vector<SourceOptions> sources;
  std::string baseDirectory;            // folder at which relative paths start
  std::string key;                      // the setting that errors name: "data.train", "data.source"
  DataFormat format = DataFormat::Auto; // of files without a header
  uint64_t sequenceLength = 0;          // tokens per row
  // Tokens that keep their order when the stream is shuffled: a multiple of sequenceLength; 0:
  // equal to it.
  uint64_t shuffleBlock = 0;
  uint32_t vocabSize = 0; // every token id must be smaller
  uint64_t seed = 0;
  bool allowRepeats = false;  // false: a file that is given twice is an error
  bool shuffle = true;        // false: each source in file order (validation)
  bool bestFit = false;       // blocks are rows and hold whole documents of one file
  bool documentMask = false;  // fill() also returns where documents start
  bool documentLossMask = false;                      // the last token of a document has no target
  std::string documentKey = "training.document_mask"; // key of the masks, for error texts
  int32_t endOfDocument = -1; // id that ends documents in files without a table; -1: none
};

// The facts about a source that are printed, and that limits need.
struct SourceFacts {
  std::string name, key; // of SourceOptions
  double maxEpochs = 0;
  double share = 1;               // share of the blocks of the stream
  std::vector<std::string> paths; // of all files
  uint64_t tokens = 0;            // in all files
  uint64_t tokensPerEpoch = 0;    // in whole blocks, with padding
  uint64_t padding = 0;           // tokens of an epoch that no document fills
  uint64_t cutDocuments = 0;      // with bestFit: documents that are longer than a block
};

class DataSource {
public:
  // Opens every file. Returns an error if sequenceLength does not divide shuffleBlock, if a source
  // has no whole block, if a file is given twice, if a file was made for a larger vocabulary, if a
  // file that is only taken to be uint16 could not hold the vocabulary, if the weights have too
  // many digits (Mixture.h) or, with documentMask or documentLossMask, if a file does not say where
  // its documents end. With bestFit, a file without a table of documents or with a damaged one is
  // an error, and so is a shuffleBlock other than sequenceLength. Token ids are checked later, when
  // fill() reads them.
  static Result<std::unique_ptr<DataSource>> open(const DataOptions &options);

  uint64_t sequenceLength() const { return options.sequenceLength; }
  uint64_t blockLength() const { return options.shuffleBlock; } // tokens
  // Returns the rows in whole blocks of all sources.
  uint64_t samplesPerEpoch() const;
  std::vector<SourceFacts> sources() const; // in the order of DataOptions::sources
  // Returns warnings about data that may not be intended: a file that is too short for one block,
  // copies of a file, files of different tokenizers, an end-of-document token that a file does not
  // seem to have.
  const std::vector<std::string> &warnings() const { return problems; }
  // Returns the fingerprints of all files by SourceOptions::key, in the order in which the source
  // has them.
  Result<std::map<std::string, std::vector<FileFingerprint>>> fingerprints() const;

  // Returns the bytes of text that each id stands for, or kUnknownBytes (TokenFormats.h). Returns
  // nothing unless all files state them and agree.
  Result<std::vector<uint16_t>> bytesOfTokens() const;

  // Lets the stream begin behind the first starts[i] tokens of the stream of source i; by default
  // all are 0. If at all, it must be called before fill().
  void startAt(const std::vector<uint64_t> &starts);
  // Returns the tokens of the source that have been read when the stream is read up to `position`,
  // with those before its start.
  uint64_t tokensRead(size_t source, uint64_t position) const;

  // Fills the rows of `tokens` and `targets` ([rows, sequenceLength] int32, row-major) with the
  // stream from token `position` on. targets[t] is the token after tokens[t] in its file, even if
  // it belongs to another block or document. With a document mask, `starts` (shaped as `tokens`, or
  // null) gets for each token the position in the row at which the token's document begins. If
  // the document begins before the row, the value is 0. If it begins in another block than the
  // token, the value is where the token's block begins in the row. With bestFit or
  // documentLossMask, the last token of a document has no target (kIgnoredTarget); with bestFit,
  // nor has padding. An end-of-document token belongs to
  // the document that it ends. Errors name file and position: a token beyond the vocabulary, a
  // damaged table of documents. Thread safe.
  Result<void> fill(uint64_t position, uint64_t rows, int32_t *tokens, int32_t *targets,
                    int32_t *starts = nullptr) const;
  bool hasDocumentMask() const { return options.documentMask; }

  // Returns the file of the token at `position` of the stream, and the token's position in it.
  std::pair<std::string, uint64_t> locate(uint64_t position) const;

private:
  struct Source {
    SourceOptions options;
    std::vector<std::unique_ptr<TokenFile>> files;
    std::vector<PackedWindows> packed; // packed windows of each file; only with bestFit
    std::vector<uint64_t> firstBlock;  // first block of each file; last: number of blocks
    uint64_t blocks = 0, tokens = 0;
    uint64_t seed = 0;
    uint64_t start = 0; // tokens of the source's stream that precede the run's
  };
  // Consecutive tokens of a file, or padding.
  struct Piece {
    const Source *source;
    const TokenFile *file;
    uint64_t begin, length;
    bool isPadding = false;
    bool hasSuccessor = true; // the token after the last one is its target
  };

  DataSource() = default;
  Result<void> openSource(const SourceOptions &from);
  // Returns the tokens of the stream from `position` to the end of their block or, with bestFit, of
  // their document, at most `most`.
  Piece pieceAt(uint64_t position, uint64_t most) const;
  Result<void> fillPiece(const Piece &piece, int32_t *tokens, int32_t *targets) const;
  Result<void> maskLasts(const Piece &piece, const int32_t *tokens, int32_t *targets) const;
  Result<void> fillStarts(const Piece &piece, const int32_t *tokens, int32_t first,
                          int32_t *starts) const;

  DataOptions options;
  std::vector<Source> opened;
  Mixture mixture;
  std::vector<std::string> problems; // of warnings()
};

// The rows of an optimizer step that one rank reads. A step has `perStep` consecutive rows; the first
// `perMicroStep` are those of rank 0 in its first micro-step, the next those of rank 1, and so on.
struct BatchRows {
  uint64_t perStep = 0, perMicroStep = 0;
  uint64_t ranks = 1, rank = 0;
};

// Produces the batches of one rank in order, ahead of time, on `workers` threads.
class BatchLoader {
public:
  struct Batch {
    std::vector<int32_t> tokens;  // [rows, sequenceLength]
    std::vector<int32_t> targets; // [rows, sequenceLength]
    std::vector<int32_t> starts;  // [rows, sequenceLength] with a document mask; else empty
    uint64_t validTargets = 0;    // number of targets that are part of the loss
  };
  // The first call of next() returns rows of the step that begins at token `position` of the stream,
  // the next call rows of the step after it. `source` must outlive the loader. With 0 workers,
  // next() makes the batch itself.
  BatchLoader(const DataSource &source, const BatchRows &rows, uint64_t position, int workers);
  ~BatchLoader();
  // Returns the next batch, or its Error. After an Error, every later call returns the same Error.
  Result<Batch> next();

private:
  Result<Batch> make(uint64_t number) const;
  void work(); // of a thread

  const DataSource &source;
  const BatchRows rows;
  const uint64_t position;                        // of batch 0
  std::vector<std::optional<Result<Batch>>> ring; // batch b is in slot b % size
  uint64_t nextClaim = 0, nextTake = 0;
  bool stopping = false;
  std::optional<Error> failure; // an error that next() returned; it returns the same again
  std::mutex mutex;
  std::condition_variable filled, freed;
  std::vector<std::thread> threads;
};

} // namespace lmc
