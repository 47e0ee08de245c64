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
  std::string baseDirectory;       // relative paths start here
  std::string key;                 // "data.train": named in errors
  uint64_t sequenceLength = 0;     // tokens per sample
  uint32_t vocabSize = 0;          // ids must be below
  uint64_t seed = 0;
  bool shuffle = true;             // false: in file order (validation)
  bool documentMask = false;       // fill() also gives where documents start
  int32_t endOfDocument = -1;      // for files without a table of documents: the last token of
                                   // each; -1: there are no such files
};

class DataSource {
public:
  // Opens every file and checks that there is at least one sample, and with a
  // document mask that every file tells its documents apart. Token ids are checked
  // as they are read.
  static Result<std::unique_ptr<DataSource>> open(const DataOptions &options);
  ~DataSource();

  uint64_t samplesPerEpoch() const;
  // Of all files. What is left at a file's end, fewer than sequenceLength tokens,
  // is in no sample.
  uint64_t tokens() const;
  uint64_t sequenceLength() const;

  // Fills rows of `tokens` and `targets` ([count, sequenceLength] int32,
  // row-major) with samples [first, first + count); targets[t] is the token
  // after tokens[t], also where that begins another document. With a document mask,
  // starts[t] of `starts` (as `tokens`, or null) is where in its row the document of token t
  // begins: 0 where that was before the row. An end-of-document token belongs to the
  // document that it ends. A token beyond the vocabulary, and a damaged table of
  // documents, are Errors with file and position. Thread safe.
  Result<void> fill(uint64_t first, uint64_t count, int32_t *tokens, int32_t *targets,
                    int32_t *starts = nullptr) const;
  bool hasDocumentMask() const;

  // The file and the token position that sample `index` starts at.
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
    uint64_t validTargets = 0;     // targets that count in the loss
  };
  // Batch b holds samples [b * samples, (b + 1) * samples), from `firstBatch` on.
  // The source must outlive the loader. 0 workers: next() makes its batch itself.
  BatchLoader(const DataSource &source, uint64_t samples, uint64_t firstBatch, int workers);
  ~BatchLoader();
  // An Error comes in the place of its batch, and again from then on.
  Result<Batch> next();

private:
  struct State;
  std::unique_ptr<State> state;
};

} // namespace lmc
