// Samples for training. A sample depends only on the seed and the sample's index in the run.
//
// Sample i of an epoch is a window of sequence_length + 1 tokens. Windows tile each file, and their
// order is a permutation with the key (seed, epoch). A data source has no state that changes, so
// any rank can produce any sample, and a run that is resumed with another number of ranks or
// another micro-batch size reads exactly the samples that come next.
#pragma once

#include "runtime/data/TokenFile.h"
#include "runtime/support/Result.h"

#include <memory>
#include <string>
#include <vector>

namespace lmc {

inline constexpr int32_t kIgnoredTarget = -100; // a position without a loss, as in PyTorch

struct DataOptions {
  std::vector<std::string> paths;       // files or globs; globs expand in sorted order
  std::string baseDirectory;            // folder that relative paths start from
  std::string key;                      // setting that errors name: "data.train"
  DataFormat format = DataFormat::Auto; // of files without a header
  uint64_t sequenceLength = 0;          // tokens per sample
  uint32_t vocabSize = 0;               // every token id must be smaller
  uint64_t seed = 0;
  bool shuffle = true;        // false: in file order (validation)
  bool documentMask = false;  // fill() also returns where documents start
  int32_t endOfDocument = -1; // the id that ends a document in files without a table; -1: none
};

class DataSource {
public:
  // Opens every file. Returns an error if there is no whole sample, if a file was made for a larger
  // vocabulary, if a file that is only taken to be uint16 could not hold the vocabulary or, with a
  // document mask, if a file does not say where its documents end. Token ids are checked later,
  // when fill() reads them.
  static Result<std::unique_ptr<DataSource>> open(const DataOptions &options);
  ~DataSource();

  uint64_t samplesPerEpoch() const;
  // The number of tokens in all files. Tokens at the end of a file that do not fill a sample are
  // counted, although no sample contains them.
  uint64_t tokens() const;
  uint64_t sequenceLength() const;
  std::vector<std::string> paths() const; // of all files

  // Fills the rows of `tokens` and `targets` ([count, sequenceLength] int32, row-major) with
  // samples [first, first + count). targets[t] is the token after tokens[t], even if it begins
  // another document. With a document mask, `starts` (shaped as `tokens`, or null) gets for each
  // token the position in the row at which the token's document begins, or 0 if it begins before
  // the row. An end-of-document token belongs to the document that it ends. Errors name file and
  // position: a token beyond the vocabulary, a damaged table of documents. Thread safe.
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

// Produces batches in order, ahead of time, on `workers` threads.
class BatchLoader {
public:
  struct Batch {
    std::vector<int32_t> tokens;  // [samples, sequenceLength]
    std::vector<int32_t> targets; // [samples, sequenceLength]
    std::vector<int32_t> starts;  // [samples, sequenceLength] with a document mask, else empty
    uint64_t validTargets = 0;    // targets that are part of the loss
  };
  // Batch b holds samples [b * samples, (b + 1) * samples). The first call of next() returns batch
  // `firstBatch`. `source` must outlive the loader. With 0 workers, next() makes the batch itself.
  BatchLoader(const DataSource &source, uint64_t samples, uint64_t firstBatch, int workers);
  ~BatchLoader();
  // Returns the next batch, or its Error. After an Error, every later call returns the same Error.
  Result<Batch> next();

private:
  struct State;
  std::unique_ptr<State> state;
};

} // namespace lmc
