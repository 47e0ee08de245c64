// Reads documents from text, JSON lines and Parquet. Only one buffer of text, one line of JSON or
// one batch of rows is in memory at a time.
#pragma once

#include "ground/support/Result.h"
#include "tools/lmc-data/Progress.h"

#include <optional>
#include <string>
#include <string_view>

namespace lmc {

enum class InputFormat { Text, JsonLines, Parquet };

// Returns the format of "text", "jsonl" or "parquet". Error: another name.
Result<InputFormat> parseInputFormat(std::string_view name);
// Returns the format that the ending of a path implies; nullopt if it implies none. The endings are
// .jsonl, .ndjson and .txt, each also followed by .gz or .zst, and .parquet.
std::optional<InputFormat> formatOfName(const std::string &path);

// The maximum number of bytes of a document to tokenize. It must be in memory as a whole.
inline constexpr uint64_t kMaximumDocument = 1 << 30;

struct DocumentOptions {
  // If not set, the file's name implies the format; if the name implies none, it is text.
  std::optional<InputFormat> format = std::nullopt;
  std::string separator = "\f"; // ends each document of a text; "": one document per file
  std::string field = "text";   // field of JSON, or column of Parquet, with the text
  bool nullIsEmpty = false;     // a null is an empty text, and not an Error
  // True: invalid UTF-8 becomes U+FFFD, and a surrogate in JSON without its other half becomes '?',
  // as in Python. False: both are Errors.
  bool replaceInvalid = false;
  uint64_t maximumBytes = UINT64_MAX; // limit of one document; a longer one is an Error
};

// A place in a file at which a document may begin.
struct DocumentPlace {
  uint64_t offset = 0; // bytes of text before this place
  uint64_t number = 1; // number of the line of JSON, or of the row of Parquet

  // Returns the `number` that placeOf() needs for a document at this place: offset, line or row.
  uint64_t in(InputFormat format) const { return format == InputFormat::Text ? offset : number; }
};
// Returns the name of a document whose DocumentPlace::in() is `number`: "a.jsonl:17",
// "a.txt: byte 17 of the text" or "a.parquet: row 17".
std::string placeOf(const std::string &path, InputFormat format, uint64_t number);

struct DocumentName {
  std::string path;
  InputFormat format = InputFormat::Text;
  uint64_t number = 0;  // DocumentPlace::in()
  uint64_t ordinal = 0; // number of documents before this one, over all files

  std::string text() const { return placeOf(path, format, number); }
};

struct DocumentReceiver {
  virtual ~DocumentReceiver() = default;
  virtual void beginFile(const std::string &path, InputFormat format) {}
  virtual Result<void> text(std::string_view piece) = 0; // receives the document's next piece
  // Ends the current document, which lies in [begin, end) of its file.
  virtual Result<void> endDocument(const DocumentPlace &begin, const DocumentPlace &end) = 0;
};

InputFormat formatOf(const std::string &path, const DocumentOptions &options);

// Reads the documents of one file (which may be compressed) or of standard input, from `from` to
// the end. The last document ends with the file, or with a separator at the end of the file. Errors
// name the file and, if possible, the line, column or byte.
Result<void> readDocuments(const std::string &path, const DocumentOptions &options,
                           DocumentReceiver &receiver, Progress &progress,
                           const DocumentPlace &from = {});

} // namespace lmc
