#include "tools/lmc-run/check/Preflight.h"

#include "ground/plan/TargetRules.h"
#include "ground/support/Median.h"
#include "ground/support/Size.h"
#include "runtime/monitor/Console.h"
#include "tools/lmc-run/check/MeasurePairs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>

namespace lmc {

using nlohmann::ordered_json;
using plan::Axis;
using plan::LinkKind;

namespace {

constexpr int kMicro = 1000000;
constexpr uint64_t kMessage = 1 << 20; // bytes of the exchange whose times are compared

// The speed of a link: measured, or assumed by the plan.
struct Speed {
  double latency = 0;   // seconds
  double bandwidth = 0; // bytes/s
  double seconds() const { return latency + kMessage / bandwidth; }
};

// Returns the median latency and the median bandwidth of `speeds`.
template <typename Each> Speed medianOf(const std::vector<Each> &speeds) {
  std::vector<double> latencies, bandwidths;
  for (const Each &speed : speeds) {
    latencies.push_back(speed.latency);
    bandwidths.push_back(speed.bandwidth);
  }
  return {median(latencies), median(bandwidths)};
}

struct Row {
  std::string name; // "shard", "replicate", "device", "node"
  uint64_t ranks = 0, count = 0;
  std::optional<Speed> assumed;
  Speed measured; // the median
};

class Preflight {
public:
  Preflight(const PlanFile &file, World &world, const ProgramOptions &options)
      : file(file), plan(*file), world(world), options(options),
        perNode(static_cast<int>(plan.devices_per_node())), overHost(plan::computesOnHost(plan)),
        console(options.output, options.errors) {}

  Result<ExitCode> run() {
    const double start = steadySeconds();
    world.progress().enter(Activity::Measuring, 0);
    // Each axis takes about a quarter of kPreflightSeconds, and the pairs take half of it.
    for (Axis axis : {Axis::Shard, Axis::Replicate})
      LMC_TRY(measureAxis(axis));
    LMC_LET(pairs, measurePairs(world, perNode, kPreflightSeconds / 2));
    sent += pairs->sent;
    judge(pairs->onNode, LinkKind::Device);
    judge(pairs->acrossNodes, LinkKind::Node);
    seconds = steadySeconds() - start;
    options.json ? printJson() : printTable();
    return slow.empty() ? ExitCode::Success : ExitCode::SlowLink;
  }

private:
  struct Slow {
    std::string text;
    SlowLink link;
  };

  Result<void> measureAxis(Axis axis) {
    const uint64_t shard = plan.shard_ranks(), all = static_cast<uint64_t>(world.size());
    const uint64_t size = axis == Axis::Shard ? shard : all / shard;
    if (size < 2)
      return {};
    LMC_LET(own, measureGroup(world.along(axis), kPreflightSeconds / 4));
    std::vector<GroupSpeed> ofRanks(all);
    LMC_TRY(world.all().allGather(&*own, ofRanks.data(), sizeof(GroupSpeed)));
    uint64_t most = 0;
    for (const GroupSpeed &speed : ofRanks)
      most = std::max(most, speed.sent);
    sent += most;

    // Takes the speed of each group from the group's first rank.
    Row row{axis == Axis::Shard ? "shard" : "replicate", size, all / size, {}, {}};
    std::vector<Speed> ofGroups;
    std::vector<double> times;
    for (uint64_t group = 0; group < row.count; ++group) {
      const GroupSpeed &speed = ofRanks[axis == Axis::Shard ? group * shard : group];
      ofGroups.push_back({speed.latency, speed.bandwidth});
      times.push_back(ofGroups.back().seconds());
    }
    row.measured = medianOf(ofGroups);
    if (const auto *speeds = plan.axis_speeds())
      for (const plan::AxisSpeed *speed : *speeds)
        if (speed->axis() == axis)
          row.assumed = Speed{speed->latency(), speed->bandwidth()};
    rows.push_back(row);

    const double usual = median(times);
    for (uint64_t group = 0; group < row.count; ++group) {
      if (times[group] < kSlow * usual)
        continue;
      SlowLink link{{}, {}, times[group], usual};
      for (uint64_t i = 0; i < size; ++i)
        link.from.push_back(
            static_cast<int>(axis == Axis::Shard ? group * shard + i : group + i * shard));
      slow.push_back(
          {fmt::format("the group of {} along the axis {} is slow: {:.1f} times the time "
                       "of the median group",
                       world.namesOf(link.from), row.name, link.seconds / usual),
           link});
    }
    return {};
  }

  void judge(const std::vector<PairSpeed> &pairs, LinkKind kind) {
    if (pairs.empty())
      return;
    const bool isNode = kind == LinkKind::Node;
    Row row{isNode ? "node" : "device", 2, pairs.size(), {}, {}};
    row.measured = medianOf(pairs);
    if (const plan::Link *link = linkOf(kind))
      row.assumed = Speed{link->base() + link->latency(), link->bandwidth()};
    rows.push_back(row);

    const std::string where = isNode ? "other nodes" : "their node";
    const std::vector<SlowLink> links = slowLinks(pairs, perNode);
    for (const SlowLink &link : links)
      slow.push_back(
          {fmt::format("{}: exchanging 1 MiB takes {:.3g} ms, {:.1f} times the usual {:.3g} ms",
                       link.to.empty()
                           ? fmt::format("slow links of {} with ranks of {}",
                                         world.namesOf(link.from), where)
                           : fmt::format("slow link between {} and {}", world.namesOf(link.from),
                                         world.namesOf(link.to)),
                       link.seconds * 1e3, link.seconds / link.usual, link.usual * 1e3),
           link});
    if (isNode && links.empty() && world.size() == 2 * perNode && overHost && row.assumed &&
        row.measured.seconds() >= kSlow * row.assumed->seconds()) {
      SlowLink link{{}, {}, row.measured.seconds(), row.assumed->seconds()};
      for (int i = 0; i < perNode; ++i) {
        link.from.push_back(i);
        link.to.push_back(perNode + i);
      }
      slow.push_back({fmt::format("slow link between {} and {}: exchanging 1 MiB takes {:.3g} ms, "
                                  "and the plan assumed {:.3g} ms",
                                  world.namesOf(link.from), world.namesOf(link.to),
                                  link.seconds * 1e3, link.usual * 1e3),
                      link});
    }
  }

  // Returns the plan's assumption about a link; null if there is none.
  const plan::Link *linkOf(LinkKind kind) const {
    if (const auto *links = plan.links())
      for (const plan::Link *link : *links)
        if (link->kind() == kind)
          return link;
    return nullptr;
  }

  // Returns lines for the device spec if links are kSlow times slower or faster than assumed.
  // Divides the measured latency into `base` and `latency` in the ratio of the plan's two values.
  std::string specLines() const {
    std::string lines;
    for (LinkKind kind : {LinkKind::Device, LinkKind::Node}) {
      const plan::Link *link = linkOf(kind);
      const auto row =
          std::ranges::find(rows, kind == LinkKind::Node ? "node" : "device", &Row::name);
      if (!overHost || !link || row == rows.end())
        continue;
      const double ratio = row->measured.seconds() / row->assumed->seconds();
      if (ratio < kSlow && ratio > 1 / kSlow)
        continue;
      const double both = link->base() + link->latency();
      const double base = both > 0 ? link->base() / both : 0.5;
      lines += fmt::format("[link.{}]\nbase = {:.3g}\nlatency = {:.3g}\nbandwidth = {:.4g}\n",
                           row->name, base * row->measured.latency,
                           (1 - base) * row->measured.latency, row->measured.bandwidth);
    }
    return lines;
  }

  std::string specName() const { return plan.device_spec() ? plan.device_spec()->str() : ""; }

  std::string transport() const {
    return overHost ? "TCP between the hosts' memories, as in training"
                    : "TCP between the hosts' memories; what GPUs reach among themselves is not "
                      "measured, and the plan's assumptions are not compared";
  }

  void printTable() {
    console.note(fmt::format("preflight of {} ranks on {} nodes: {:.1f} s of about {:.0f} s, and a "
                             "rank sent at most {}",
                             world.size(), plan.nodes(), seconds, kPreflightSeconds,
                             formatBytes(sent)));
    console.note(fmt::format("  {}", transport()));
    console.note("                                latency, us               bandwidth, MB/s");
    console.note("                      ranks  assumed measured ratio    assumed measured ratio");
    for (const Row &row : rows) {
      const std::string name = row.name == "device" ? "pairs on a node"
                               : row.name == "node" ? "pairs of two nodes"
                                                    : "axis " + row.name;
      auto cells = [&](double Speed::*member, double unit) {
        const double measured = row.measured.*member;
        if (!overHost || !row.assumed)
          return fmt::format("{:>10} {:>8.4g} {:>5}", "-", measured * unit, "-");
        const double assumed = (*row.assumed).*member;
        return fmt::format("{:>10.4g} {:>8.4g} {:>5}", assumed * unit, measured * unit,
                           assumed > 0 ? fmt::format("{:.2f}", measured / assumed) : "-");
      };
      console.note(fmt::format("  {:<19} {:>5} {} {}", name,
                               fmt::format("{}x{}", row.count, row.ranks),
                               cells(&Speed::latency, kMicro), cells(&Speed::bandwidth, 1e-6)));
    }
    for (const Slow &each : slow)
      console.warning(each.text);
    if (overHost && !linkOf(LinkKind::Device) && !linkOf(LinkKind::Node))
      console.note("  the plan does not say what links it was compiled for; compile it again with "
                   "this release to compare");
    const std::string lines = specLines();
    if (lines.empty())
      return;
    console.note(fmt::format(
        "  links are far from those of the device spec '{}', and so may be the plan's predictions. "
        "In a copy of the spec, replace these lines, and see `lmc explain {} --spec=COPY.toml`:",
        specName(), plan.config_path() ? plan.config_path()->str() : "JOB.toml"));
    for (size_t at = 0, end; at < lines.size(); at = end + 1) {
      end = lines.find('\n', at);
      console.note("    " + lines.substr(at, end - at));
    }
  }

  void printJson() {
    ordered_json report = {{"plan", file.path()},
                           {"ranks", world.size()},
                           {"nodes", plan.nodes()},
                           {"seconds", seconds},
                           {"seconds_limit", kPreflightSeconds},
                           {"sent_bytes", sent},
                           {"transport", transport()},
                           {"device_spec", specName()}};
    auto json = [](const Speed &speed) {
      return ordered_json{{"latency_seconds", speed.latency}, {"bandwidth", speed.bandwidth}};
    };
    report["links"] = ordered_json::array();
    for (const Row &row : rows)
      report["links"].push_back({{"name", row.name},
                                 {"ranks", row.ranks},
                                 {"count", row.count},
                                 {"assumed", row.assumed ? json(*row.assumed) : ordered_json()},
                                 {"measured", json(row.measured)}});
    report["slow"] = ordered_json::array();
    for (const Slow &each : slow)
      report["slow"].push_back({{"text", each.text},
                                {"from", each.link.from},
                                {"to", each.link.to},
                                {"seconds", each.link.seconds},
                                {"usual_seconds", each.link.usual}});
    report["spec"] = specLines();
    std::fputs((report.dump(2) + "\n").c_str(), options.output);
    std::fflush(options.output);
  }

  const PlanFile &file;
  const plan::Plan &plan;
  World &world;
  const ProgramOptions &options;
  const int perNode;
  const bool overHost; // true if collectives go between the memories of hosts
  Console console;
  std::vector<Row> rows;
  std::vector<Slow> slow;
  uint64_t sent = 0; // bytes sent by the rank that sent the most
  double seconds = 0;
};

} // namespace

Result<ExitCode> preflight(const PlanFile &plan, World &world, const ProgramOptions &options) {
  if (world.size() > 1)
    return Preflight(plan, world, options).run();
  const std::string text = "the plan is for one rank: there is no link to measure";
  const std::string json = ordered_json{
      {"plan", plan.path()},
      {"ranks", 1},
      {"links", ordered_json::array()},
      {"slow",
       ordered_json::array()}}.dump(2);
  std::fputs(((options.json ? json : "preflight: " + text) + "\n").c_str(), options.output);
  return ExitCode::Success;
}

} // namespace lmc
