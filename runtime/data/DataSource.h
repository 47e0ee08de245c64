// Samples for training: a pure function of (seed, global sample index).
//
// Sample i of an epoch is a window of sequence_length + 1 tokens; windows tile
// each file and their order is a permutation keyed by (seed, epoch). No state is
// carried, so any rank can produce any sample, and resuming at another number of
// ranks or micro-batch size reads exactly the samples that come next.
#pragma once

#include "runtime/data/TokenFile.h"
#include "runtime/support/Result.h"

#include <memory>
#include <string>
#include <vector>

namespace lmc {

inline constexpr int32_t kIgnoredTarget = -100; // a position without a loss, as in PyTorch

struct DataOptions {
  std::vector<std::string> paths;  // files or globs; globs expand in sorted order
  std::string baseDirectory;       // folder that relative paths start from
  std::string key;                 // "data.train": named in errors
  uint64_t sequenceLength = 0;     // tokens per sample
  uint32_t vocabSize = 0;          // all ids must be below
  uint64_t seed = 0;
  bool shuffle = true;             // false: in file order (validation)
  bool documentMask = false;       // fill() also gives where documents start
  int32_t endOfDocument = -1;      // for files without a table of documents: the last token of
                                   // each; -1: there are no such files
};

class DataSource {
public:
  // Opens every file. Checks that there is at least one sample and, with a document mask, that the
  // documents of every file can be told apart. Token ids are checked when they are read.
  static Result<std::unique_ptr<DataSource>> open(const DataOptions &options);
  ~DataSource();

  uint64_t samplesPerEpoch() const;
  // The number of tokens in all files. Tokens left at a file's end, fewer than sequenceLength, are
  // in no sample.
  uint64_t tokens() const;
  uint64_t sequenceLength() const;

  // Fills the rows of `tokens` and `targets` ([count, sequenceLength] int32, row-major) with
  // samples [first, first + count). targets[t] is the token after tokens[t], even if it begins
  // another document. With a document mask, starts[t] (`starts` has the shape of `tokens`, or is
  // null) is the position in the row at which the document of token t begins, or 0 if it begins
  // before the row. An end-of-document token belongs to the document that it ends. Errors, with
  // file and position: a token beyond the vocabulary, a damaged table of documents. Thread safe.
  Result<void> fill(uint64_t first, uint64_t count, int32_t *tokens, int32_t *targets,
                    int32_t *starts = nullptr) const;
  bool hasDocumentMask() const;

  // Returns the file and the token position at which sample `index` starts.
  std::pair<std::string, uint64_t> locate(uint64_t index) const;

private:
  DataSource();
  struct State;
  std::unique_ptr<State> state;
};

// Produces batches ahead of time on `workers` threads, in order.
class BatchLoader {
public:
  struct Batch {
    std::vector<int32_t> tokens;   // [samples, sequenceLength]
    std::vector<int32_t> targets;  // [samples, sequenceLength]
    std::vector<int32_t> starts;   // [samples, sequenceLength] with a document mask, else empty
    uint64_t validTargets = 0;     // targets that are part of the loss
  };
  // Batch b holds samples [b * samples, (b + 1) * samples); the first one returned is `firstBatch`.
  // The source must outlive the loader. With 0 workers, next() fills the batch itself.
  BatchLoader(const DataSource &source, uint64_t samples, uint64_t firstBatch, int workers);
  ~BatchLoader();
  // Returns the next batch. A batch that failed gives its Error, and so do all calls after it.
  Result<Batch> next();

private:
  struct State;
  std::unique_ptr<State> state;
};

} // namespace lmc
