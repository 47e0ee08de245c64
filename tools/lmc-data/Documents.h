// Reads documents from text and JSON lines in pieces: memory holds one line of JSON or one buffer
// of text, never a whole file.
#pragma once

#include "runtime/support/Result.h"
#include "tools/lmc-data/Progress.h"

#include <optional>
#include <string>
#include <string_view>

namespace lmc {

enum class InputFormat { Text, JsonLines };

struct DocumentOptions {
  std::optional<InputFormat> format; // none: JSON lines for .jsonl and .ndjson, else text
  std::string separator = "\f";      // ends a document of a text; "": one document per file
  std::string field = "text";        // field of a JSON line with the text
};

struct DocumentReceiver {
  virtual ~DocumentReceiver() = default;
  virtual Result<void> text(std::string_view piece) = 0; // more of the document
  virtual Result<void> endDocument() = 0;
};

// Reads the documents of one file. The end of the file ends a document. Errors name the file, and
// in JSON lines also the line and column.
Result<void> readDocuments(const std::string &path, const DocumentOptions &options,
                           DocumentReceiver &receiver, Progress &progress);

} // namespace lmc
