// Reads a column of texts of a Parquet file, through the plug-in (ParquetPlugin.h).
#pragma once

#include "ground/support/Result.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace lmc {

struct ParquetPlugin;

class ParquetFile {
public:
  // Opens a file and its column of strings, at row `firstRow` (from 0). Errors: the plug-in or the
  // file cannot be opened, the file is damaged, or it has no such column.
  static Result<std::unique_ptr<ParquetFile>> open(const std::string &path,
                                                   const std::string &column, uint64_t firstRow);
  ~ParquetFile();

  struct Row {
    std::optional<std::string_view> text; // nullopt: null. Valid until the next call of next().
    uint64_t bytesRead = 0;               // approximate number of bytes of the file read so far
  };
  // Returns the next row; nullopt: the end. Error: a row group, which the message names, is
  // damaged.
  Result<std::optional<Row>> next();

private:
  ParquetFile(std::string path, const ParquetPlugin &plugin, void *reader)
      : path(std::move(path)), plugin(plugin), reader(reader) {}
  std::string path;
  const ParquetPlugin &plugin;
  void *reader;
};

} // namespace lmc
