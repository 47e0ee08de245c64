#include "compiler/cost/DeviceSpec.h"

#include "ground/config/Diagnostics.h"
#include "ground/support/Nearest.h"
#include "ground/support/Size.h"

#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <variant>

#include "ground/config/Toml.h"

namespace lmc::cost {
namespace {

constexpr struct {
  const char *name, *text;
} kBuiltIn[] = {
#include "devices.inc"
};

// A key of a section, the field of the spec for its value (a uint64_t is a number of bytes), and
// the range of allowed values.
struct Key {
  const char *name;
  std::variant<double *, int64_t *, std::string *, uint64_t *, DataType *, bool *,
               std::vector<std::string> *>
      value;
  double minimum = 0, maximum = 0; // range of numbers, inclusive
  bool required = true;
};
using Keys = std::vector<Key>;

constexpr double kMaxRate = 1e21; // FLOP/s or bytes/s
constexpr double kMaxSeconds = 1;
constexpr double kMaxTaken = 0.9; // the maximum share of the processors that a link may take
constexpr double kMaxCount = 1 << 20;

// Returns the keys before the first section.
Keys keysOf(DeviceSpec &spec) {
  return {{"name", &spec.name},
          {"description", &spec.description},
          {"arch", &spec.arch},
          {"default_of", &spec.defaultOf, 0, 0, false},
          {"host", &spec.host, 0, 0, false}};
}

// Returns the sections that a spec has at most once, with their keys, without [gemm] and [link.*].
std::vector<std::pair<const char *, Keys>> sectionsOf(DeviceSpec &spec) {
  return {{"memory",
           {{"bytes", &spec.memoryBytes},
            {"reserve", &spec.reserveBytes},
            {"bandwidth", &spec.memoryBandwidth, 1, kMaxRate},
            {"reachable", &spec.reachable, 0.01, 1},
            {"cache", &spec.cacheBytes, 0, 0, false},
            {"cache_bandwidth", &spec.cacheBandwidth, 1, kMaxRate, false}}},
          {"peak",
           {{"bf16", &spec.peak[size_t(DataType::BF16)], 1, kMaxRate},
            {"f32", &spec.peak[size_t(DataType::F32)], 1, kMaxRate},
            {"f64", &spec.peak[size_t(DataType::F64)], 1, kMaxRate},
            {"fp8", &spec.peakFp8, 1, kMaxRate, false}}},
          {"vector", {{"flops", &spec.vectorFlops, 1, kMaxRate}}},
          {"clock", {{"hertz", &spec.clock, 1, 1e12}, {"alone", &spec.clockAlone, 1, 1e12, false}}},
          {"launch", {{"seconds", &spec.launchSeconds, 0, kMaxSeconds}}}};
}

Key workspaceOf(DeviceSpec &spec) { return {"workspace", &spec.gemmWorkspaceBytes, 0, 0, false}; }

Keys keysOf(GemmModel &model) {
  return {{"sustained", &model.sustained, 1, kMaxRate},
          {"tile_rows", &model.tileRows, 1, kMaxCount},
          {"tile_columns", &model.tileColumns, 1, kMaxCount},
          {"units", &model.units, 1, kMaxCount},
          {"fixed_depth", &model.fixedDepth, 0, kMaxCount},
          {"max_splits", &model.maxSplits, 1, 64, false}};
}

Keys keysOf(AttentionModel &model) {
  return {{"dtype", &model.dtype},
          {"head_dim", &model.headDim, 1, 4096},
          {"forward", &model.forward, 1, kMaxRate},
          {"forward_half_length", &model.forwardHalfLength, 0, 1e9},
          {"backward", &model.backward, 1, kMaxRate},
          {"backward_half_length", &model.backwardHalfLength, 0, 1e9}};
}

Keys keysOf(SwigluRate &rate) {
  return {{"rows", &rate.rows, 1, 1 << 30},
          {"inner", &rate.inner, 1, 1 << 30},
          {"columns", &rate.columns, 1, 1 << 30},
          {"forward", &rate.forward, 0, 2, false},
          {"backward", &rate.backward, 0, 2, false}};
}

Keys keysOf(LinkModel &link, bool isBetweenNodes) {
  Keys keys = {{"base", &link.base, 0, kMaxSeconds},
               {"latency", &link.latency, 0, kMaxSeconds},
               {"bandwidth", &link.bandwidth, 1, kMaxRate},
               {"processors", &link.processors, 0, kMaxTaken, false}};
  if (isBetweenNodes)
    keys.push_back({"stages", &link.stages, 0, 0, false});
  return keys;
}

class SpecReader {
public:
  SpecReader(const std::string &path) : path(path) {}

  void read(const toml::table &root, DeviceSpec &spec) {
    fields(root, "", keysOf(spec),
           {"memory", "peak", "vector", "clock", "launch", "gemm", "attention", "swiglu", "link"});
    for (const auto &[name, known] : sectionsOf(spec))
      if (const toml::table *table =
              section(root, name, name, std::string_view(name) != "clock" || isGpu(spec)))
        fields(*table, name, known);
    if (spec.clockAlone == 0)
      spec.clockAlone = spec.clock;
    readGemm(root, spec);
    for (const toml::table *table : tablesOf(root, "attention", /*required=*/true))
      fields(*table, "attention", keysOf(spec.attention.emplace_back()));
    for (const toml::table *table : tablesOf(root, "swiglu", /*required=*/false))
      fields(*table, "swiglu", keysOf(spec.swiglu.emplace_back()));
    if (const toml::table *links = section(root, "link", "link", false)) {
      fields(*links, "link", {}, {"device", "node"});
      if (const toml::table *table = section(*links, "device", "link.device", false))
        fields(*table, "link.device", keysOf(spec.deviceLink, /*isBetweenNodes=*/false));
      if (const toml::table *table = section(*links, "node", "link.node", false))
        fields(*table, "link.node", keysOf(spec.nodeLink, /*isBetweenNodes=*/true));
    }
    if (diagnostics.empty())
      together(root, spec);
  }

  config::Location at(const toml::source_region &source) const {
    return {path, unsigned(source.begin.line), unsigned(source.begin.column)};
  }

  config::Diagnostics diagnostics;

private:
  // Returns true if the spec's `arch` is a compute capability, such as "sm_90a" (docs/devices.md).
  static bool isGpu(const DeviceSpec &spec) { return spec.arch.starts_with("sm_"); }

  // Returns the table `name` of `parent`; null if there is none. A missing section is an error if
  // it is `required`.
  const toml::table *section(const toml::table &parent, const char *name, const std::string &full,
                             bool required = true) {
    const toml::node *node = parent.get(name);
    if (!node) {
      if (required && !unknownSection)
        diagnostics.error({path}, "missing section [{}]", full);
      return nullptr;
    }
    if (!node->is_table())
      diagnostics.error(at(node->source()), "'{}' is a section; write [{}]", full, full);
    return node->as_table();
  }

  // Reads the keys of a section. Reports every key that is neither in `known` nor in `sections`.
  // Returns false if there is such a key.
  bool fields(const toml::table &table, const std::string &section, const Keys &known,
              const std::vector<std::string> &sections = {}) {
    std::vector<std::string> names = sections;
    for (const Key &field : known)
      names.push_back(field.name);
    const std::string where = section.empty() ? "" : fmt::format(" in [{}]", section);
    bool unknown = false;
    for (const auto &[key, node] : table) {
      if (std::find(names.begin(), names.end(), key.str()) != names.end())
        continue;
      const bool header = section.empty() && node.is_table();
      diagnostics.error(at(key.source()), "unknown {}{}{}",
                        header ? fmt::format("section [{}]", key.str())
                               : fmt::format("key '{}'", key.str()),
                        where, suggestion(key.str(), names));
      unknown = true;
      unknownSection |= header;
    }
    for (const Key &field : known) {
      const toml::node *node = table.get(field.name);
      if (node)
        assign(field, *node, section);
      else if (field.required && !unknown) // a misspelt key is reported as unknown, not as missing
        diagnostics.error(section.empty() ? config::Location{path} : at(table.source()),
                          "missing key '{}'{}", field.name, where);
    }
    return !unknown;
  }

  void assign(const Key &field, const toml::node &node, const std::string &section) {
    const std::string name = section.empty() ? field.name : section + "." + field.name;
    auto error = [&](const std::string &problem) {
      diagnostics.error(at(node.source()), "{}{}", name, problem);
    };
    auto range = [&](double value) {
      if (value >= field.minimum && value <= field.maximum)
        return true;
      error(fmt::format(" is {:g}; it must be from {:g} to {:g}", value, field.minimum,
                        field.maximum));
      return false;
    };
    if (auto *target = std::get_if<double *>(&field.value)) {
      if (!node.is_number())
        return error(" must be a number");
      if (double value = *node.value<double>(); range(value))
        **target = value;
    } else if (auto *target = std::get_if<int64_t *>(&field.value)) {
      if (!node.is_integer())
        return error(" must be an integer");
      if (int64_t value = *node.value<int64_t>(); range(double(value)))
        **target = value;
    } else if (auto *target = std::get_if<std::string *>(&field.value)) {
      auto text = node.value_exact<std::string>();
      if (!text || text->empty())
        return error(" must be a string");
      **target = *text;
    } else if (auto *target = std::get_if<bool *>(&field.value)) {
      if (!node.is_boolean())
        return error(" must be true or false");
      **target = *node.value<bool>();
    } else if (auto *target = std::get_if<std::vector<std::string> *>(&field.value)) {
      const toml::array *list = node.as_array();
      if (!list || !std::all_of(list->begin(), list->end(),
                                [](const toml::node &entry) { return entry.is_string(); }))
        return error(" must be a list of strings");
      for (const toml::node &entry : *list)
        (*target)->push_back(*entry.value<std::string>());
    } else if (auto *target = std::get_if<DataType *>(&field.value)) {
      auto text = node.value_exact<std::string>();
      for (const auto &known : kDataTypeNames)
        if (text && *text == known.name) {
          **target = known.dtype;
          return;
        }
      error(" must be one of \"bf16\", \"f32\", \"f64\"");
    } else {
      uint64_t *bytes = std::get<uint64_t *>(field.value);
      if (auto number = node.value_exact<int64_t>(); number && *number >= 0) {
        *bytes = uint64_t(*number);
        return;
      }
      auto text = node.value_exact<std::string>();
      if (!text)
        return error(" must be a size in bytes or with a unit, such as \"79.1GiB\"");
      Result<uint64_t> parsed = parseSize(*text);
      if (!parsed)
        return error(": " + parsed.error().message);
      *bytes = *parsed;
    }
  }

  // Reads the [gemm.DTYPE] sections. A dtype that has no section gets the numbers of the first
  // section that exists, but with FLOP/s scaled by the ratio of the two dtypes' peaks.
  void readGemm(const toml::table &root, DeviceSpec &spec) {
    const toml::table *gemm = section(root, "gemm", "gemm");
    if (!gemm)
      return;
    if (!fields(*gemm, "gemm", {workspaceOf(spec)}, {"bf16", "f32", "f64", "fp8"}))
      return;
    const GemmModel *first = nullptr;
    DataType firstType = DataType::BF16;
    for (const auto &known : kDataTypeNames) {
      const std::string full = fmt::format("gemm.{}", known.name);
      const toml::table *table = section(*gemm, known.name, full, false);
      if (!table)
        continue;
      GemmModel &model = spec.gemm[size_t(known.dtype)];
      fields(*table, full, keysOf(model));
      if (!first) {
        first = &model;
        firstType = known.dtype;
      }
    }
    if (!first)
      return diagnostics.error(at(gemm->source()),
                               "[gemm] has none of [gemm.bf16], [gemm.f32], [gemm.f64]");
    for (const auto &known : kDataTypeNames) {
      GemmModel &model = spec.gemm[size_t(known.dtype)];
      if (gemm->get(known.name) || spec.peakOf(firstType) <= 0)
        continue;
      model = *first;
      model.sustained *= spec.peakOf(known.dtype) / spec.peakOf(firstType);
    }
    spec.gemmFp8 = spec.gemm[size_t(DataType::BF16)];
    if (const toml::table *table = section(*gemm, "fp8", "gemm.fp8", false)) {
      if (spec.peakFp8 <= 0)
        return diagnostics.error(at(table->source()), "[gemm.fp8] needs the key fp8 in [peak]");
      fields(*table, "gemm.fp8", keysOf(spec.gemmFp8));
    } else if (spec.peakFp8 > 0) {
      spec.gemmFp8.sustained *= spec.peakFp8 / spec.peakOf(DataType::BF16);
    }
  }

  // Returns the tables of the list [[name]]. If `required`, a missing list is an error.
  std::vector<const toml::table *> tablesOf(const toml::table &root, const char *name,
                                            bool required) {
    std::vector<const toml::table *> tables;
    const toml::node *node = root.get(name);
    if (!node && (!required || unknownSection))
      return tables;
    const toml::array *list = node ? node->as_array() : nullptr;
    if (!list || list->empty()) {
      diagnostics.error(node ? at(node->source()) : config::Location{path},
                        "{0} must be a list of tables; write [[{0}]]", name);
      return tables;
    }
    for (const toml::node &entry : *list)
      if (const toml::table *table = entry.as_table())
        tables.push_back(table);
      else
        diagnostics.error(at(entry.source()), "{} must be a list of tables", name);
    return tables;
  }

  void together(const toml::table &root, DeviceSpec &spec) {
    const toml::table &memory = *root.get("memory")->as_table();
    if (spec.reserveBytes >= spec.memoryBytes)
      diagnostics.error(at(memory.get("reserve")->source()),
                        "memory.reserve leaves nothing of memory.bytes = {}", spec.memoryBytes);
    if ((memory.get("cache") != nullptr) != (memory.get("cache_bandwidth") != nullptr))
      diagnostics.error(at(memory.source()), "memory.cache and memory.cache_bandwidth go together");
    if (spec.clockAlone < spec.clock)
      diagnostics.error(at((*root.get("clock")->as_table()).get("alone")->source()),
                        "clock.alone is below clock.hertz: a kernel alone is not slower than in a step");
  }

  const std::string &path;
  bool unknownSection = false; // true if a section's name is unknown; then no section is
                               // reported as missing: the unknown name may be its misspelt name
};

// Writes the sections of a spec.
class SpecWriter {
public:
  SpecWriter(const std::string &header, const SpecComments &comments)
      : text(header), comments(comments) {}

  // Writes the keys of a section, without optional keys that have the values of `defaults`.
  void keys(const std::string &section, const Keys &known, const Keys &defaults = {}) {
    for (size_t i = 0; i < known.size(); ++i)
      if (const std::string value = textOf(known[i]);
          known[i].required || defaults.empty() || value != textOf(defaults[i]))
        line(fmt::format("{} = {}", known[i].name, value),
             section.empty() ? known[i].name : section + "." + known[i].name);
  }

  // Writes the section `name` under a blank line and the heading "[name]".
  void section(const std::string &name, const Keys &known, const Keys &defaults = {}) {
    text += '\n';
    line(fmt::format("[{}]", name), name);
    keys(name, known, defaults);
  }

  // Writes a list of sections, each under a blank line and the heading "[[name]]".
  template <typename Entry> void list(const std::string &name, std::vector<Entry> &entries) {
    for (size_t i = 0; i < entries.size(); ++i) {
      const std::string numbered = fmt::format("{}.{}", name, i);
      text += '\n';
      line(fmt::format("[[{}]]", name), numbered);
      keys(numbered, keysOf(entries[i]));
    }
  }

  std::string text;

private:
  static std::string quoted(const std::string &value) {
    std::string escaped;
    for (char c : value) {
      if (c == '"' || c == '\\')
        escaped += '\\';
      escaped += c;
    }
    return '"' + escaped + '"';
  }

  // Returns the value of a key as TOML.
  static std::string textOf(const Key &key) {
    if (auto *number = std::get_if<double *>(&key.value))
      return fmt::format("{:.6g}", **number);
    if (auto *text = std::get_if<std::string *>(&key.value))
      return quoted(**text);
    if (auto *dtype = std::get_if<DataType *>(&key.value))
      return quoted(std::ranges::find(kDataTypeNames, **dtype, &DataTypeName::dtype)->name);
    if (auto *list = std::get_if<std::vector<std::string> *>(&key.value)) {
      std::vector<std::string> each;
      std::ranges::transform(**list, std::back_inserter(each), quoted);
      return fmt::format("[{}]", fmt::join(each, ", "));
    }
    if (auto *flag = std::get_if<bool *>(&key.value))
      return **flag ? "true" : "false";
    if (auto *bytes = std::get_if<uint64_t *>(&key.value))
      return fmt::format("{}", **bytes);
    return fmt::format("{}", *std::get<int64_t *>(key.value));
  }

  void line(const std::string &content, const std::string &name) {
    auto comment = comments.find(name);
    text += comment == comments.end() ? content + "\n"
                                      : fmt::format("{:<26} # {}\n", content, comment->second);
  }

  const SpecComments &comments;
};

} // namespace

bool isSpecPath(std::string_view name) {
  return name.find('/') != std::string_view::npos || name.ends_with(".toml");
}

std::vector<std::string> deviceSpecNames() {
  std::vector<std::string> names;
  for (const auto &builtIn : kBuiltIn)
    names.push_back(builtIn.name);
  std::sort(names.begin(), names.end());
  return names;
}

Rates ratesOf(const DeviceSpec *spec, DataType dtype) {
  if (!spec)
    return kDefaultRates;
  return {spec->gemm[size_t(dtype)].sustained, spec->memoryBandwidth * spec->reachable,
          spec->launchSeconds};
}

// Returns the built-in specs, each with its name. They are parsed only once, because a
// forecast of many jobs asks for them hundreds of times.
static const std::vector<std::pair<std::string, Result<DeviceSpec>>> &builtInSpecs() {
  static const auto specs = [] {
    std::vector<std::pair<std::string, Result<DeviceSpec>>> parsed;
    for (const auto &builtIn : kBuiltIn)
      parsed.emplace_back(builtIn.name, parseDeviceSpec(builtIn.text, builtIn.name));
    return parsed;
  }();
  return specs;
}

std::string defaultDeviceSpec(std::string_view device) {
  const std::string_view family = device.substr(0, device.rfind(':'));
  for (const auto &[name, spec] : builtInSpecs())
    if (spec)
      for (const std::string &listed : spec->defaultOf)
        if (listed == device || listed == family)
          return name;
  return "";
}

Result<DeviceSpec> parseDeviceSpec(const std::string &text, const std::string &path) {
  SpecReader reader(path);
  DeviceSpec spec;
  const toml::parse_result result = toml::parse(text);
  if (result)
    reader.read(result.table(), spec);
  else
    reader.diagnostics.error(reader.at(result.error().source()), "{}",
                             result.error().description());
  if (reader.diagnostics.empty())
    return spec;
  std::string message = reader.diagnostics.text();
  while (message.ends_with('\n'))
    message.pop_back();
  return Error{message};
}

Result<DeviceSpec> loadDeviceSpec(const std::string &nameOrPath, const std::string &directory) {
  for (const auto &[name, spec] : builtInSpecs())
    if (nameOrPath == name)
      return spec;
  if (!isSpecPath(nameOrPath)) {
    std::vector<std::string> names = deviceSpecNames();
    return userError("there is no device spec '{}'{}; built in are {}, and a path ends in .toml",
                     nameOrPath, suggestion(nameOrPath, names), fmt::join(names, ", "));
  }
  const std::string path = (std::filesystem::path(directory) / nameOrPath).string();
  Result<std::string> text = config::readFile(path);
  if (!text)
    return userError("{}: error: {}", path, text.error().message);
  return parseDeviceSpec(*text, path);
}

Result<DeviceSpec> deviceSpecOf(const TargetConfig &target, const std::string &directory) {
  std::string name = target.spec.empty() ? defaultDeviceSpec(target.device) : target.spec;
  if (name.empty())
    return userError("no device spec is known for '{}'; name one with target.spec: {}, or a file",
                     target.device, fmt::join(deviceSpecNames(), ", "));
  Result<DeviceSpec> spec = loadDeviceSpec(name, directory);
  if (spec && target.spec.empty() && spec->host) {
    int64_t pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);
    if (pages > 0 && bytes > 0) {
      // The memory of a virtual machine may change by single pages between two calls. The rounding
      // gives a job the same budget each time.
      constexpr uint64_t kStep = uint64_t(16) << 20;
      uint64_t memory = uint64_t(pages) * uint64_t(bytes) / kStep * kStep;
      spec->memoryBytes = std::max(memory, 2 * spec->reserveBytes);
    }
  }
  return spec;
}

std::string deviceSpecToml(DeviceSpec spec, const std::string &header,
                           const SpecComments &comments) {
  if (spec.cacheBytes == 0)
    spec.cacheBandwidth = 0;
  if (spec.clockAlone == spec.clock)
    spec.clockAlone = 0;
  DeviceSpec defaults;
  SpecWriter to(header, comments);
  to.keys("", keysOf(spec), keysOf(defaults));
  const auto sections = sectionsOf(spec), ofDefaults = sectionsOf(defaults);
  for (size_t i = 0; i < sections.size(); ++i)
    if (const auto &[name, known] = sections[i];
        std::string_view(name) != "clock" || spec.clock > 0)
      to.section(name, known, ofDefaults[i].second);
  if (spec.gemmWorkspaceBytes != defaults.gemmWorkspaceBytes)
    to.section("gemm", {workspaceOf(spec)});
  for (const auto &[name, dtype] : kDataTypeNames)
    to.section(fmt::format("gemm.{}", name), keysOf(spec.gemm[size_t(dtype)]),
               keysOf(defaults.gemm[size_t(dtype)]));
  if (spec.peakFp8 > 0)
    to.section("gemm.fp8", keysOf(spec.gemmFp8), keysOf(defaults.gemmFp8));
  to.list("attention", spec.attention);
  to.list("swiglu", spec.swiglu);
  for (bool isBetweenNodes : {false, true})
    if (LinkModel &link = isBetweenNodes ? spec.nodeLink : spec.deviceLink; link.bandwidth > 0)
      to.section(isBetweenNodes ? "link.node" : "link.device", keysOf(link, isBetweenNodes),
                 keysOf(defaults.nodeLink, isBetweenNodes));
  return std::move(to.text);
}

} // namespace lmc::cost
