#include "tools/lmc-data/input/ParquetFile.h"

#include "ground/support/Places.h"
#include "tools/parquet/ParquetPlugin.h"

#include <fmt/format.h>

#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>

namespace lmc {

namespace {

constexpr size_t kErrorBytes = 4096;

// Returns the path of the plug-in: LMC_PARQUET_PLUGIN, or ../lib/lmc from this program's folder.
std::string pluginPath() {
  if (const char *given = std::getenv("LMC_PARQUET_PLUGIN"); given && *given)
    return given;
  return (programFolder().parent_path() / "lib/lmc" / kParquetPluginFile).string();
}

Result<const ParquetPlugin *> openPlugin() {
  const std::string path = pluginPath();
  if (std::error_code ignored; !std::filesystem::exists(path, ignored))
    return userError(
        "Parquet needs the plug-in {}, which is not there; get pyarrow (./dev setup, or pip "
        "install pyarrow) and build lmc again with the CMake option LMC_BUILD_PARQUET=ON",
        path);
  void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return userError("Parquet needs a plug-in that cannot be opened: {}; the pyarrow that it was "
                     "built with must stay where it was (./dev setup installs it; for a wheel of "
                     "lmc, pip install lmc[parquet])",
                     dlerror());
  auto entry = reinterpret_cast<const ParquetPlugin *(*)()>(dlsym(library, kParquetPluginEntry));
  const ParquetPlugin *plugin = entry ? entry() : nullptr;
  if (!plugin || plugin->version != kParquetPluginVersion)
    return userError("{}: belongs to another version of lmc-data; build lmc again", path);
  return plugin;
}

} // namespace

Result<std::unique_ptr<ParquetFile>>
ParquetFile::open(const std::string &path, const std::string &column, uint64_t firstRow) {
  static const Result<const ParquetPlugin *> plugin = openPlugin();
  if (!plugin)
    return Error{fmt::format("{}: {}", path, plugin.error().message), plugin.error().code};
  char error[kErrorBytes] = "";
  void *reader = (*plugin)->open(path.c_str(), column.c_str(), firstRow, error, sizeof(error));
  if (!reader)
    return userError("{}: {}", path, error);
  return std::unique_ptr<ParquetFile>(new ParquetFile(path, **plugin, reader));
}

ParquetFile::~ParquetFile() { plugin.close(reader); }

Result<std::optional<ParquetFile::Row>> ParquetFile::next() {
  char error[kErrorBytes] = "";
  ParquetText text{};
  const int read = plugin.next(reader, &text, error, sizeof(error));
  if (read < 0)
    return userError("{}: {}; copy it again", path, error);
  if (read == 0)
    return std::optional<Row>();
  Row row;
  row.bytesRead = text.bytesRead;
  if (text.data)
    row.text = std::string_view(text.data, text.bytes);
  return std::optional<Row>(row);
}

} // namespace lmc
