// Lets the model continue the prompts of generation.prompts during a run, for people to read.
#pragma once

#include "runtime/folder/RunDirectory.h"
#include "runtime/monitor/RunObserver.h"
#include "runtime/step/Session.h"
#include "runtime/text/Generator.h"
#include "runtime/text/TextCodec.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lmc {

// All ranks call the same functions. Rank 0 reads the prompts and writes the results.
class TextGeneration {
public:
  // Reads the prompts and opens OUT/generated.jsonl. Moves its lines of later steps to undone/. The
  // tokenizer is beside the training data `data`. Returns null if the job has no prompts. Errors,
  // for example: a prompt has an id beyond the vocabulary, or a prompt and max_new_tokens more ids
  // do not fit in a sequence.
  static Result<std::unique_ptr<TextGeneration>> open(Session &session, const DataSource &data,
                                                      RunDirectory &directory, Console &console,
                                                      RunLog &log, RunObserver *observer);

  bool isDue(uint64_t step, bool last) const {
    const int64_t interval = session.settings.config.generation.interval;
    return last || (interval > 0 && step % static_cast<uint64_t>(interval) == 0);
  }

  // Generates, writes and shows texts after `step`. If `stopRequested` becomes true on a rank,
  // writes nothing and returns false.
  Result<bool> generate(uint64_t step, const std::function<bool()> &stopRequested);

private:
  struct Prompt {
    uint64_t line = 0; // number of the line in the file, from 1
    std::string text;  // valid UTF-8
  };
  TextGeneration(Session &session, Console &console, RunLog &log, RunObserver *observer)
      : session(session), console(console), log(log), observer(observer) {}
  // Reads prompts. Each line that is not empty is one. In a file "*.jsonl", each line is an object
  // {"prompt": TEXT}.
  static Result<std::vector<Prompt>> readPrompts(const std::string &path);
  // Called by rank 0.
  Result<void> readPromptsOf(const DataSource &data);
  // Sends the ids of the prompts to the other ranks.
  Result<void> share();
  Result<void> report(uint64_t step, const std::vector<Continuation> &all, double seconds);

  Session &session;
  Console &console;
  RunLog &log;
  RunObserver *observer;
  std::unique_ptr<Generator> generator;
  std::vector<std::vector<int32_t>> ids; // the ids of each prompt
  int32_t endOfDocument = -1;
  // Used by rank 0:
  std::optional<TextCodec> codec;
  std::vector<Prompt> texts;
  std::optional<LineFile> file;
};

} // namespace lmc
