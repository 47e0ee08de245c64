// The texts that a model has generated during a run: OUT/generated.jsonl.
#pragma once

#include "tools/report/GrowingFile.h"

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace lmc {

class GeneratedTexts {
public:
  static constexpr size_t kMaxPrompts = 16; // the first ones are kept
  static constexpr size_t kMaxTexts = 6;    // kept per prompt, the latest ones
  static constexpr size_t kMaxBytes = 4000; // of each prompt and text

  struct Text {
    int64_t step = 0;
    std::string text;
    std::string end; // reason of the end: "length", "end_of_document", "not_finite"
  };
  struct Prompt {
    std::string prompt;
    std::deque<Text> texts; // the oldest first
  };

  explicit GeneratedTexts(const std::string &folder) : file(folder + "/generated.jsonl") {}

  // Reads the lines that were added since the last call. Ignores damaged lines.
  Result<void> update();
  const std::vector<Prompt> &prompts() const { return kept; }

private:
  void read(std::string_view line);

  GrowingFile file;
  std::vector<Prompt> kept; // in the order of the file
};

} // namespace lmc
