#include "compiler/cost/Collectives.h"

#include <algorithm>
#include <cmath>

namespace lmc::cost {

// Returns the rate of the group's ring in bytes/s (Collectives.h).
static double rateOf(const Group &group, const DeviceSpec &spec) {
  const double across = double(group.devicesPerNode) * spec.nodeLink.bandwidth;
  if (group.devicesPerNode == 1)
    return across;
  return group.nodes == 1 ? spec.deviceLink.bandwidth : std::min(spec.deviceLink.bandwidth, across);
}

static double baseOf(const Group &group, const DeviceSpec &spec) {
  return (group.nodes > 1 ? spec.nodeLink : spec.deviceLink).base;
}

// Returns the seconds of a collective that goes around the ring `passes` times: 1 for all-gather or
// reduce-scatter, 2 for all-reduce.
static double ringSeconds(double bytes, const Group &group, int passes, const DeviceSpec &spec) {
  const double n = double(group.devicesPerNode * group.nodes);
  if (n <= 1)
    return 0;
  const double hops = double(group.nodes - 1) * spec.nodeLink.latency +
                      (n - double(group.nodes)) * spec.deviceLink.latency;
  return baseOf(group, spec) + passes * (hops + (n - 1) / n * bytes / rateOf(group, spec));
}

// Returns the seconds of an all-reduce over a tree of nodes.
static double treeSeconds(double bytes, const Group &group, const DeviceSpec &spec) {
  constexpr double kTreeRate = 0.92; // share of the ring's rate (NCCL's src/graph/tuning.cc)
  const double n = double(group.devicesPerNode * group.nodes);
  const double hops = double(group.devicesPerNode - 1) * spec.deviceLink.latency +
                      std::log2(double(group.nodes)) * spec.nodeLink.latency;
  return baseOf(group, spec) +
         2 * (hops + (n - 1) / n * bytes / (kTreeRate * rateOf(group, spec)));
}

// Returns true if collectives of the group work in stages (Collectives.h).
static bool hasStages(const Group &group, const DeviceSpec &spec) {
  return spec.nodeLink.stages && group.devicesPerNode > 1 && group.nodes > 1;
}

// Returns the seconds of a collective in stages: `inside` passes around the ring inside each node,
// and `across` passes around the rings across the nodes.
static double stagedSeconds(double bytes, const Group &group, int inside, int across,
                            const DeviceSpec &spec) {
  return inside * ringSeconds(bytes, {group.devicesPerNode, 1}, 1, spec) +
         ringSeconds(bytes / double(group.devicesPerNode), {1, group.nodes}, across, spec);
}

double allGatherSeconds(double bytes, const Group &group, const DeviceSpec &spec) {
  return hasStages(group, spec) ? stagedSeconds(bytes, group, 1, 1, spec)
                                : ringSeconds(bytes, group, 1, spec);
}

AllGatherLine allGatherLine(const Group &group, const DeviceSpec &spec) {
  const double n = double(group.devicesPerNode * group.nodes), bytes = 1e9;
  const double latency = allGatherSeconds(0, group, spec);
  return {latency, (n - 1) / n * bytes / (allGatherSeconds(bytes, group, spec) - latency)};
}

double allReduceSeconds(double bytes, const Group &group, const DeviceSpec &spec) {
  if (hasStages(group, spec))
    return stagedSeconds(bytes, group, 2, 2, spec);
  const double ring = ringSeconds(bytes, group, 2, spec);
  return group.nodes == 1 ? ring : std::min(ring, treeSeconds(bytes, group, spec));
}

double processorsOf(const Group &group, const DeviceSpec &spec) {
  return std::max(group.devicesPerNode > 1 ? spec.deviceLink.processors : 0,
                  group.nodes > 1 ? spec.nodeLink.processors : 0);
}

} // namespace lmc::cost
