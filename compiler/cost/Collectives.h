// Predicts the time of collectives by the alpha-beta model of rings (NCCL's own tuning model,
// src/graph/tuning.cc). A ring of n devices moves (n - 1) / n of the bytes over every link in n - 1
// hops:
//
//   all-gather, reduce-scatter:  base + (n - 1) latency + (n - 1) / n * bytes / bandwidth
//   all-reduce:                  a reduce-scatter, then an all-gather, with one base
//
// `base`, `latency` and `bandwidth` are those of LinkModel. `bytes` is always the size of the whole
// tensor: after an all-gather, before a reduce-scatter. In a group of several nodes, the devices
// number i of all nodes form one ring, which handles 1 / devicesPerNode of the tensor (a share):
//
//   all-gather      of a share across the nodes, then of the whole tensor inside each node
//   reduce-scatter  inside each node, then of a share across the nodes
//   all-reduce      reduce-scatter inside, all-reduce of a share across, all-gather inside
#pragma once

#include "compiler/cost/DeviceSpec.h"

namespace lmc::cost {

// The devices that take part in a collective.
struct Group {
  int64_t devicesPerNode = 1;
  int64_t nodes = 1;
};

// Return the time of the collective in seconds; 0 for one device. The spec must have every link
// that the group uses.
double allGatherSeconds(double bytes, const Group &group, const DeviceSpec &spec);
double reduceScatterSeconds(double bytes, const Group &group, const DeviceSpec &spec);
double allReduceSeconds(double bytes, const Group &group, const DeviceSpec &spec);

} // namespace lmc::cost
