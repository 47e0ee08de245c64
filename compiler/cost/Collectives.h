// Predicts the time of collectives by the alpha-beta model of NCCL's own tuning
// (src/graph/tuning.cc). `bytes` is the size of the whole tensor: after an all-gather, or before a
// reduce-scatter.
//
// On GPUs, the n = devicesPerNode * nodes devices of a group form one ring. Each piece of the
// tensor goes around it in n - 1 hops, nodes - 1 of which lead to another node:
//
//   all-gather, reduce-scatter:  base + hops + (n - 1) / n * bytes / rate
//     hops = (n - nodes) * latency of [link.device] + (nodes - 1) * latency of [link.node]
//     rate = the slower of the bandwidth of [link.device] and of devicesPerNode times the bandwidth
//            of [link.node], because all network adapters of a node work at once
//   all-reduce:                  twice around the ring, with one base
//
// `base` is that of [link.node] if the group has several nodes. Such a group can also run an
// all-reduce over a tree of nodes. The tree has 0.92 of the ring's rate (NCCL's factor), 2 *
// (devicesPerNode - 1) hops inside nodes, and 2 * log2(nodes) hops between nodes. The faster of
// ring and tree counts.
//
// If [link.node] sets `stages`, a collective of several nodes has stages (NodeCommunicator.h), each
// of which uses rings. Devices with the same number in their nodes form a ring across the nodes.
// Each of these rings works on 1 / devicesPerNode of the tensor, a share:
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

// Return the time of the collective in seconds; 0 for one device. A reduce-scatter takes as long as
// an all-gather. `spec` must describe every link that the group uses.
double allGatherSeconds(double bytes, const Group &group, const DeviceSpec &spec);
double allReduceSeconds(double bytes, const Group &group, const DeviceSpec &spec);

// Returns the share of a device's processors that the group's collectives occupy: the larger of the
// shares of the links that they use.
double processorsOf(const Group &group, const DeviceSpec &spec);

// An all-gather over n devices takes latency + (n - 1) / n * bytes / bandwidth seconds.
struct AllGatherLine {
  double latency;   // seconds
  double bandwidth; // bytes/s
};

// The group must have at least two devices.
AllGatherLine allGatherLine(const Group &group, const DeviceSpec &spec);

} // namespace lmc::cost
