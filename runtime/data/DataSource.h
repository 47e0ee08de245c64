// The stream of tokens that a run is trained on. It depends on the seed, but not on
// sequence_length, batch size or the number of ranks, so a resumed run may change these.
//
// Each file is cut into blocks of `shuffleBlock` tokens; a shorter rest is left out. A source's
// stream is a sequence of epochs. An epoch contains each block of the source's files once. The
// source's seed and the epoch's number determine the order of its blocks. The source's seed is the
// XXH64 of its name, seeded with the run's seed; without a name, it is the run's seed. Mixture
// decides from which source each block of the run's stream comes. A row may span two blocks.
//
// With `bestFit`, a block is a window of whole documents (BestFit.h). The positions after a
// window's last document are padding: they have the id 0 and no loss.
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

inline constexpr int32_t kIgnoredTarget = -100; // target of a position without a loss

struct SourceOptions {
  std::string name;               // "": the only source of the run
  std::string key;                // setting for error texts: "data.source.web.paths"
  std::vector<std::string> paths; // files, or globs, which expand in sorted order
  double weight = 1;              // share of the blocks, relative to the weights of all sources
  double maxEpochs = 0; // maximum number of times that a run reads the source; 0: no limit
};

struct DataOptions {
  std::vector<SourceOptions> sources;
  std::string baseDirectory;            // folder at which relative paths start
  std::string key;                      // setting for error texts: "data.train", "data.source"
  DataFormat format = DataFormat::Auto; // format of files without a header
  uint64_t sequenceLength = 0;          // tokens per row
  // Tokens per block, a multiple of sequenceLength; 0: sequenceLength. A shuffle moves only blocks.
  uint64_t shuffleBlock = 0;
  uint32_t vocabSize = 0; // every token id must be smaller
  uint64_t seed = 0;
  bool allowRepeats = false;  // false: a file that is given twice is an error
  bool shuffle = true;        // false: sources are read in the order of their files (validation)
  bool bestFit = false;       // a block is one row with whole documents of one file
  bool documentMask = false;  // fill() also returns where documents start
  bool documentLossMask = false;                      // the last token of a document has no target
  std::string documentKey = "training.document_mask"; // setting that needs documents, for errors
  int32_t endOfDocument = -1; // id that ends documents in files without a table; -1: none
};

struct SourceFacts {
  std::string name, key; // as in SourceOptions
  double maxEpochs = 0;
  double share = 1;               // share of the blocks of the stream
  std::vector<std::string> paths; // paths of all files
  uint64_t tokens = 0;            // number of tokens in all files
  uint64_t tokensPerEpoch = 0;    // tokens in whole blocks, with padding
  uint64_t padding = 0;           // positions of an epoch that no document fills
  uint64_t cutDocuments = 0;      // with bestFit: number of documents longer than a block
};

class DataSource {
public:
  // Opens all files. Errors: shuffleBlock is no multiple of sequenceLength or, with bestFit,
  // differs from it; a source has no whole block; the weights have too many digits (Mixture.h).
  // Errors of a file: it is given twice; its vocabulary exceeds the model's; it has no header, and
  // its type is too small for the vocabulary; it lacks document starts that bestFit or a mask
  // needs.
  static Result<std::unique_ptr<DataSource>> open(const DataOptions &options);

  uint64_t sequenceLength() const { return options.sequenceLength; }
  uint64_t blockLength() const { return options.shuffleBlock; } // tokens
  // Returns the number of rows in one epoch of all sources.
  uint64_t samplesPerEpoch() const;
  std::vector<SourceFacts> sources() const; // in the order of DataOptions::sources
  // Returns warnings: a file is too short for one block; two files are copies or have different
  // tokenizers; a sample of a file has no end-of-document token.
  const std::vector<std::string> &warnings() const { return problems; }
  // Returns the fingerprints of each source's files; the key is SourceOptions::key.
  Result<std::map<std::string, std::vector<FileFingerprint>>> fingerprints() const;

  // Returns bytesOfTokens() of the files if all files have the same, else an empty vector.
  Result<std::vector<uint16_t>> bytesOfTokens() const;

  // Makes the stream skip the first starts[i] tokens of source i. Must be called before fill().
  void startAt(const std::vector<uint64_t> &starts);
  // Returns the number of the source's tokens before `position` of the stream, plus starts[source].
  uint64_t tokensRead(size_t source, uint64_t position) const;

  // Fills `tokens` and `targets` ([rows, sequenceLength] int32, row-major) with the stream from
  // token `position` on. targets[t] is the token after tokens[t] in the file, even if that token is
  // in the next block or document. But the target is kIgnoredTarget for padding and, with bestFit
  // or documentLossMask, for each document's last token. With a document mask, also fills `starts`
  // (same shape, or null): starts[t] is the first position of the row whose token is in the same
  // document and in the same block as tokens[t]. An end-of-document token belongs to the document
  // that it ends. Errors: a token is beyond the vocabulary; a table of documents is damaged.
  // Several threads may call fill() at the same time.
  Result<void> fill(uint64_t position, uint64_t rows, int32_t *tokens, int32_t *targets,
                    int32_t *starts = nullptr) const;
  bool hasDocumentMask() const { return options.documentMask; }

  // Returns the file of a token of the stream, and the token's index in the file.
  std::pair<std::string, uint64_t> locate(uint64_t position) const;

private:
  struct Source {
    SourceOptions options;
    std::vector<std::unique_ptr<TokenFile>> files;
    std::vector<PackedWindows> packed; // windows of each file; only with bestFit
    std::vector<uint64_t> firstBlock;  // index of each file's first block; at the end, `blocks`
    uint64_t blocks = 0, tokens = 0;
    uint64_t seed = 0;
    uint64_t start = 0; // number of tokens that startAt() skips
  };
  // Consecutive tokens of a file, or padding.
  struct Piece {
    const Source *source;
    const TokenFile *file;
    uint64_t begin, length;
    bool isPadding = false;
    bool hasSuccessor = true; // true if the last token has the next one as target
  };

  DataSource() = default;
  Result<void> openSource(const SourceOptions &from);
  // Returns at most `most` consecutive tokens from `position` of the stream on. They are all in one
  // block or, with bestFit, in one document.
  Piece pieceAt(uint64_t position, uint64_t most) const;
  Result<void> fillPiece(const Piece &piece, int32_t *tokens, int32_t *targets) const;
  Result<void> maskLasts(const Piece &piece, const int32_t *tokens, int32_t *targets) const;
  Result<void> fillStarts(const Piece &piece, const int32_t *tokens, int32_t first,
                          int32_t *starts) const;

  DataOptions options;
  std::vector<Source> opened;
  Mixture mixture;
  std::vector<std::string> problems; // result of warnings()
};

// The rows that one rank reads in each optimizer step. A step has `perStep` consecutive rows. Its
// first micro-step has `perMicroStep` rows for rank 0, then `perMicroStep` for rank 1, and so on.
struct BatchRows {
  uint64_t perStep = 0, perMicroStep = 0;
  uint64_t ranks = 1, rank = 0;
};

// Prepares the batches of one rank ahead of time, on `workers` threads.
class BatchLoader {
public:
  struct Batch {
    std::vector<int32_t> tokens;  // [rows, sequenceLength]
    std::vector<int32_t> targets; // [rows, sequenceLength]
    std::vector<int32_t> starts;  // [rows, sequenceLength] with a document mask; else empty
    uint64_t validTargets = 0;    // number of targets that are part of the loss
  };
  // The first step begins at token `position` of the stream. `source` must outlive the loader. With
  // 0 workers, next() makes the batch itself.
  BatchLoader(const DataSource &source, const BatchRows &rows, uint64_t position, int workers);
  ~BatchLoader();
  // Returns the batch of the next step. After an Error, every later call returns the same Error.
  Result<Batch> next();

private:
  Result<Batch> make(uint64_t number) const;
  void work(); // run by each worker thread

  const DataSource &source;
  const BatchRows rows;
  const uint64_t position;                        // token position of batch 0
  std::vector<std::optional<Result<Batch>>> ring; // batch b is in slot b % size
  uint64_t nextClaim = 0, nextTake = 0;
  bool stopping = false;
  std::optional<Error> failure; // the first Error of next()
  std::mutex mutex;
  std::condition_variable filled, freed;
  std::vector<std::thread> threads;
};

} // namespace lmc
