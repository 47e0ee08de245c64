// Reads documents from text and from JSON lines piece by piece: only one line of JSON, or one
// buffer of text, is in memory at a time.
#pragma once

#include "runtime/support/Result.h"
#include "tools/lmc-data/Progress.h"

#include <optional>
#include <string>
#include <string_view>

namespace lmc {

enum class InputFormat { Text, JsonLines };

struct DocumentOptions {
  std::optional<InputFormat> format; // nullopt: JSON lines for .jsonl and .ndjson (and these names
                                     // with .gz or .zst), else text
  std::string separator = "\f";      // ends each document of a text; "": one document per file
  std::string field = "text";        // name of the field with the text, in a line of JSON
  // Text that is not UTF-8 is no Error: U+FFFD stands for it, as Python's errors="replace" reads
  // bytes, and '?' for a lone surrogate of JSON, as it writes one.
  bool replaceInvalid = false;
};

struct DocumentReceiver {
  virtual ~DocumentReceiver() = default;
  virtual Result<void> text(std::string_view piece) = 0; // the next piece of the current document
  virtual Result<void> endDocument() = 0;
};

// Reads the documents of one file, which may be compressed (TextInput.h). The end of the file also
// ends a document. Errors name the file, for JSON lines also the line and column, and for text that
// is not UTF-8 the byte.
Result<void> readDocuments(const std::string &path, const DocumentOptions &options,
                           DocumentReceiver &receiver, Progress &progress);

} // namespace lmc
