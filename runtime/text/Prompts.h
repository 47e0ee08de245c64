// The prompts that a run continues at intervals.
#pragma once

#include "ground/support/Result.h"

#include <string>
#include <vector>

namespace lmc {

struct Prompt {
  uint64_t line = 0; // number of the line in the file, from 1
  std::string text;  // valid UTF-8
};

// Reads prompts: one per line that is not empty or, in a file "*.jsonl", one object {"prompt":
// TEXT} per line. Errors name the line: an empty prompt, not UTF-8, another object.
Result<std::vector<Prompt>> readPrompts(const std::string &path);

} // namespace lmc
