// How long collectives take, by the alpha-beta model of rings (NCCL's own tuning model,
// src/graph/tuning.cc). A ring of n devices moves (n - 1) / n of the bytes over every link in n - 1
// hops:
//
//   all-gather, reduce-scatter:  base + (n - 1) latency + (n - 1) / n * bytes / bandwidth
//   all-reduce:                  the two after another, with one base
//
// `bytes` is always the size of the whole tensor: after an all-gather, before a reduce-scatter. In
// a group of several nodes, device i of every node forms one ring with the devices i of the others,
// which handles its share of the tensor:
//
//   all-gather      across nodes of bytes / devices, then inside the node of all bytes
//   reduce-scatter  the same, in reverse order
//   all-reduce      reduce-scatter inside, all-reduce of a share across, all-gather inside
#pragma once

#include "compiler/cost/DeviceSpec.h"

namespace lmc::cost {

// The devices that take part in a collective.
struct Group {
  int64_t devicesPerNode = 1;
  int64_t nodes = 1;
};

// Seconds; 0 for one device. A link that the group needs must be in the spec.
double allGatherSeconds(double bytes, const Group &group, const DeviceSpec &spec);
double reduceScatterSeconds(double bytes, const Group &group, const DeviceSpec &spec);
double allReduceSeconds(double bytes, const Group &group, const DeviceSpec &spec);

} // namespace lmc::cost
