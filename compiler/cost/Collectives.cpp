#include "compiler/cost/Collectives.h"

namespace lmc::cost {

// Returns the seconds that `passes` passes around a ring of n devices take: 1 pass for all-gather
// or reduce-scatter, 2 for all-reduce.
static double ringSeconds(double bytes, int64_t n, int passes, const LinkModel &link) {
  if (n <= 1)
    return 0;
  double hops = double(n - 1);
  return link.base + passes * (hops * link.latency + hops / double(n) * bytes / link.bandwidth);
}

double allGatherSeconds(double bytes, const Group &group, const DeviceSpec &spec) {
  return ringSeconds(bytes / double(group.devicesPerNode), group.nodes, 1, spec.nodeLink) +
         ringSeconds(bytes, group.devicesPerNode, 1, spec.deviceLink);
}

double reduceScatterSeconds(double bytes, const Group &group, const DeviceSpec &spec) {
  return allGatherSeconds(bytes, group, spec);
}

double allReduceSeconds(double bytes, const Group &group, const DeviceSpec &spec) {
  double across = ringSeconds(bytes / double(group.devicesPerNode), group.nodes, 2, spec.nodeLink);
  if (group.nodes == 1) // one collective inside the node, no second stage
    return ringSeconds(bytes, group.devicesPerNode, 2, spec.deviceLink);
  return across + 2 * ringSeconds(bytes, group.devicesPerNode, 1, spec.deviceLink);
}

} // namespace lmc::cost
