// The interface of the plug-in, a shared library by which lmc-data reads Parquet. Only the plug-in
// is built against Arrow. No C++ type, exception or allocator crosses the interface.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lmc {

struct ParquetText {
  const char *data;   // null if the value is null; valid until the next call
  uint64_t bytes;     // of `data`
  uint64_t bytesRead; // approximate bytes of the file up to this row
};

struct ParquetPlugin {
  uint32_t version; // kParquetPluginVersion
  // Opens a file and its column of strings, at row `firstRow` (from 0). Returns a reader. After a
  // failure, returns null and writes to `error` what failed.
  void *(*open)(const char *path, const char *column, uint64_t firstRow, char *error,
                size_t errorBytes);
  // Reads the next row. Returns 1, or 0 at the end, or -1 after writing to `error` what failed.
  int (*next)(void *reader, ParquetText *text, char *error, size_t errorBytes);
  void (*close)(void *reader);
};

inline constexpr uint32_t kParquetPluginVersion = 1;
// The name of the function that returns the plug-in: const ParquetPlugin *lmcParquetPlugin().
inline constexpr char kParquetPluginEntry[] = "lmcParquetPlugin";
inline constexpr char kParquetPluginFile[] = "liblmc-parquet.so";

} // namespace lmc
