#include "compiler/cost/WriteSpec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

namespace lmc::cost {
namespace {

class SpecText {
public:
  explicit SpecText(const SpecComments &comments) : comments(comments) {}

  // Starts the section `name`, under a blank line and the heading "[name]", or "[[name]]" for an
  // entry of a list, whose number stands behind a dot.
  void section(const std::string &name, bool isList = false) {
    prefix = name;
    text += '\n';
    addLine(isList ? fmt::format("[[{}]]", name.substr(0, name.find('.')))
                   : fmt::format("[{}]", name),
            name);
  }
  void add(const char *key, double value) { addKey(key, fmt::format("{:.6g}", value)); }
  void add(const char *key, int64_t value) { addKey(key, fmt::format("{}", value)); }
  void add(const char *key, uint64_t value) { addKey(key, fmt::format("{}", value)); }
  void add(const char *key, bool value) { addKey(key, value ? "true" : "false"); }
  void add(const char *key, const std::string &value) { addKey(key, quoted(value)); }
  void add(const char *key, const std::vector<std::string> &values) {
    std::vector<std::string> each;
    for (const std::string &value : values)
      each.push_back(quoted(value));
    addKey(key, fmt::format("[{}]", fmt::join(each, ", ")));
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
  void addKey(const std::string &key, const std::string &value) {
    addLine(key + " = " + value, prefix.empty() ? key : prefix + "." + key);
  }
  void addLine(const std::string &line, const std::string &name) {
    auto comment = comments.find(name);
    text += comment == comments.end() ? line + "\n"
                                      : fmt::format("{:<26} # {}\n", line, comment->second);
  }

  const SpecComments &comments;
  std::string prefix; // the section
};

const char *nameOf(DataType dtype) {
  for (const auto &known : kDataTypeNames)
    if (known.dtype == dtype)
      return known.name;
  return "";
}

void addLink(SpecText &to, const char *name, const LinkModel &link) {
  if (link.bandwidth == 0)
    return;
  to.section(name);
  to.add("base", link.base);
  to.add("latency", link.latency);
  to.add("bandwidth", link.bandwidth);
  if (link.processors > 0)
    to.add("processors", link.processors);
  if (link.stages)
    to.add("stages", link.stages);
}

} // namespace

std::string deviceSpecToml(const DeviceSpec &spec, const std::string &header,
                           const SpecComments &comments) {
  SpecText to(comments);
  to.text = header;
  to.add("name", spec.name);
  to.add("description", spec.description);
  to.add("arch", spec.arch);
  if (!spec.defaultOf.empty())
    to.add("default_of", spec.defaultOf);
  if (spec.host)
    to.add("host", spec.host);

  to.section("memory");
  to.add("bytes", spec.memoryBytes);
  to.add("reserve", spec.reserveBytes);
  to.add("bandwidth", spec.memoryBandwidth);
  to.add("reachable", spec.reachable);
  if (spec.cacheBytes > 0) {
    to.add("cache", spec.cacheBytes);
    to.add("cache_bandwidth", spec.cacheBandwidth);
  }
  to.section("peak");
  for (const auto &known : kDataTypeNames)
    to.add(known.name, spec.peakOf(known.dtype));
  to.section("vector");
  to.add("flops", spec.vectorFlops);
  if (spec.clock > 0) {
    to.section("clock");
    to.add("hertz", spec.clock);
    if (spec.clockAlone != spec.clock)
      to.add("alone", spec.clockAlone);
  }
  to.section("launch");
  to.add("seconds", spec.launchSeconds);
  if (spec.gemmWorkspaceBytes != DeviceSpec().gemmWorkspaceBytes) {
    to.section("gemm");
    to.add("workspace", spec.gemmWorkspaceBytes);
  }
  for (const auto &known : kDataTypeNames) {
    const GemmModel &model = spec.gemm[size_t(known.dtype)];
    to.section(fmt::format("gemm.{}", known.name));
    to.add("sustained", model.sustained);
    to.add("tile_rows", model.tileRows);
    to.add("tile_columns", model.tileColumns);
    to.add("units", model.units);
    to.add("fixed_depth", model.fixedDepth);
    if (model.maxSplits != GemmModel().maxSplits)
      to.add("max_splits", model.maxSplits);
  }
  for (size_t i = 0; i < spec.attention.size(); ++i) {
    const AttentionModel &model = spec.attention[i];
    to.section(fmt::format("attention.{}", i), /*isList=*/true);
    to.add("dtype", std::string(nameOf(model.dtype)));
    to.add("head_dim", model.headDim);
    to.add("forward", model.forward);
    to.add("forward_half_length", model.forwardHalfLength);
    to.add("backward", model.backward);
    to.add("backward_half_length", model.backwardHalfLength);
  }
  for (size_t i = 0; i < spec.swiglu.size(); ++i) {
    const SwigluRate &rate = spec.swiglu[i];
    to.section(fmt::format("swiglu.{}", i), /*isList=*/true);
    to.add("rows", rate.rows);
    to.add("inner", rate.inner);
    to.add("columns", rate.columns);
    to.add("forward", rate.forward);
    to.add("backward", rate.backward);
  }
  addLink(to, "link.device", spec.deviceLink);
  addLink(to, "link.node", spec.nodeLink);
  return std::move(to.text);
}

} // namespace lmc::cost
