// The prompts that a run continues at intervals.
#pragma once

#include "ground/support/Result.h"

#include <string>
#include <vector>

namespace lmc {

struct Prompt {
  uint64_t line = 0; // of the file, from 1
  std::string text;  // valid UTF-8
};

// Reads prompts: one per line, empty lines left out; or, if the name of the file ends in ".jsonl",
// one object {"prompt": TEXT} per line. Errors name the line: no prompt, not UTF-8, no such object.
Result<std::vector<Prompt>> readPrompts(const std::string &path);

} // namespace lmc
