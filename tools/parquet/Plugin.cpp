// The plug-in reads Parquet with Arrow. One column of one row group is open at a time.

#include "tools/parquet/ParquetPlugin.h"

#include <arrow/api.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/file_reader.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

using namespace lmc;

namespace {

constexpr int64_t kBatchRows = 256;
constexpr int64_t kBufferBytes = 1 << 20; // bytes of the file that are read at a time

bool isText(const arrow::DataType &type) {
  switch (type.id()) {
  case arrow::Type::STRING:
  case arrow::Type::LARGE_STRING:
  case arrow::Type::STRING_VIEW:
  case arrow::Type::BINARY:
  case arrow::Type::LARGE_BINARY:
  case arrow::Type::BINARY_VIEW:
    return true;
  case arrow::Type::DICTIONARY:
    return isText(*static_cast<const arrow::DictionaryType &>(type).value_type());
  default:
    return false;
  }
}

// Returns the value of a row; nothing if it is null.
std::optional<std::string_view> textAt(const arrow::Array &array, int64_t row) {
  if (array.IsNull(row))
    return std::nullopt;
  switch (array.type_id()) {
  case arrow::Type::STRING:
  case arrow::Type::BINARY:
    return static_cast<const arrow::BinaryArray &>(array).GetView(row);
  case arrow::Type::LARGE_STRING:
  case arrow::Type::LARGE_BINARY:
    return static_cast<const arrow::LargeBinaryArray &>(array).GetView(row);
  case arrow::Type::DICTIONARY: {
    const auto &dictionary = static_cast<const arrow::DictionaryArray &>(array);
    return textAt(*dictionary.dictionary(), dictionary.GetValueIndex(row));
  }
  default:
    return static_cast<const arrow::BinaryViewArray &>(array).GetView(row);
  }
}

class Reader {
public:
  // May throw a std::exception, whose text says what failed.
  Reader(const std::string &path, const std::string &column, uint64_t firstRow) {
    parquet::ReaderProperties properties;
    properties.enable_buffered_stream();
    properties.set_buffer_size(kBufferBytes);
    properties.set_page_checksum_verification(true);
    parquet::ArrowReaderProperties arrowProperties;
    arrowProperties.set_batch_size(kBatchRows);
    arrowProperties.set_pre_buffer(false);
    auto opened = parquet::ParquetFileReader::OpenFile(path, /*memory_map=*/false, properties);
    file = valueOf(parquet::arrow::FileReader::Make(arrow::default_memory_pool(), std::move(opened),
                                                    arrowProperties));
    std::string names;
    for (const parquet::arrow::SchemaField &field : file->manifest().schema_fields) {
      names += (names.empty() ? "" : ", ") + field.field->name();
      if (field.field->name() != column)
        continue;
      if (!field.is_leaf() || !isText(*field.field->type()))
        throw std::runtime_error("the column \"" + column + "\" has the type " +
                                 field.field->type()->ToString() + ", expected strings");
      leaf = field.column_index;
    }
    if (leaf < 0)
      throw std::runtime_error("no column \"" + column + "\", but " + names +
                               "; name the one that holds the text with --field");
    const auto metadata = file->parquet_reader()->metadata();
    skip = firstRow;
    while (group < metadata->num_row_groups() &&
           skip >= uint64_t(metadata->RowGroup(group)->num_rows())) {
      skip -= uint64_t(metadata->RowGroup(group)->num_rows());
      bytesBefore += uint64_t(metadata->RowGroup(group)->total_compressed_size());
      ++group;
    }
  }

  bool next(ParquetText &text) {
    try {
      while (!array || row == array->length())
        if (!nextBatch())
          return false;
    } catch (const std::exception &thrown) {
      throw std::runtime_error(place() + ": cannot be read: " + thrown.what());
    }
    text = {.data = nullptr, .bytes = 0, .bytesRead = bytesBefore};
    if (const auto value = textAt(*array, row++)) {
      text.data = value->empty() ? "" : value->data();
      text.bytes = value->size();
    }
    return true;
  }

private:
  std::unique_ptr<parquet::arrow::FileReader> file;
  int leaf = -1;                                     // the number of the column
  int group = 0;                                     // number of the present row group
  std::unique_ptr<arrow::RecordBatchReader> batches; // batches of row group `group`
  std::shared_ptr<arrow::Array> array;               // of the batch
  int64_t row = 0;                                   // next row of `array` to read
  uint64_t skip = 0;                                 // number of rows still to skip
  uint64_t bytesBefore = 0;                          // bytes of the row groups before `group`

  template <typename T> static T valueOf(arrow::Result<T> result) {
    if (!result.ok())
      throw std::runtime_error(result.status().message());
    return std::move(result).ValueUnsafe();
  }

  bool nextBatch() {
    array.reset();
    row = 0;
    const auto metadata = file->parquet_reader()->metadata();
    if (group == metadata->num_row_groups())
      return false;
    if (!batches)
      batches = valueOf(file->GetRecordBatchReader({group}, {leaf}));
    std::shared_ptr<arrow::RecordBatch> batch;
    if (arrow::Status status = batches->ReadNext(&batch); !status.ok())
      throw std::runtime_error(status.message());
    if (!batch) {
      bytesBefore += uint64_t(metadata->RowGroup(group)->total_compressed_size());
      batches.reset();
      ++group;
      return true;
    }
    array = batch->column(0);
    if (arrow::Status status = array->Validate(); !status.ok())
      throw std::runtime_error(status.message());
    row = int64_t(std::min<uint64_t>(skip, uint64_t(array->length())));
    skip -= uint64_t(row);
    return true;
  }

  // Returns a text that names the row group, and the bytes of the file in which its column lies.
  std::string place() const {
    const auto column = file->parquet_reader()->metadata()->RowGroup(group)->ColumnChunk(leaf);
    const int64_t begin = column->has_dictionary_page() ? column->dictionary_page_offset()
                                                        : column->data_page_offset();
    return "row group " + std::to_string(group) + " (bytes " + std::to_string(begin) + " to " +
           std::to_string(begin + column->total_compressed_size()) + ")";
  }
};

// Writes the first line of `text` to `error`.
void putError(std::string_view text, char *error, size_t errorBytes) {
  text = text.substr(0, std::min(text.find('\n'), errorBytes - 1));
  std::memcpy(error, text.data(), text.size());
  error[text.size()] = '\0';
}

void *openReader(const char *path, const char *column, uint64_t firstRow, char *error,
                 size_t errorBytes) {
  try {
    return new Reader(path, column, firstRow);
  } catch (const std::exception &thrown) {
    putError(thrown.what(), error, errorBytes);
    return nullptr;
  }
}

int readNext(void *reader, ParquetText *text, char *error, size_t errorBytes) {
  try {
    return static_cast<Reader *>(reader)->next(*text);
  } catch (const std::exception &thrown) {
    putError(thrown.what(), error, errorBytes);
    return -1;
  }
}

void closeReader(void *reader) { delete static_cast<Reader *>(reader); }

} // namespace

extern "C" __attribute__((visibility("default"))) const ParquetPlugin *lmcParquetPlugin() {
  static constexpr ParquetPlugin kPlugin = {kParquetPluginVersion, openReader, readNext,
                                            closeReader};
  return &kPlugin;
}
