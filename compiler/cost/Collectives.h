// Predicts the time of collectives by the alpha-beta model of NCCL's own tuning
// (src/graph/tuning.cc).
//
// On GPUs, the n = devicesPerNode * nodes devices of a group form one ring, as in NCCL. Pieces of
// the tensor go around it in n - 1 hops, of which nodes - 1 cross to another node, and over every
// link go (n - 1) / n of the bytes:
//
//   all-gather, reduce-scatter:  base + hops + (n - 1) / n * bytes / rate
//     hops = (n - nodes) * latency of [link.device] + (nodes - 1) * latency of [link.node]
//     rate = the slower of the bandwidth of [link.device] and of devicesPerNode times the bandwidth
//            of [link.node]
//   all-reduce:                  twice around the ring, with one base
//
// All adapters of a node work at once, each for its part of the tensor: hence the factor
// devicesPerNode. `base` is that of [link.node] if the group has several nodes.
//
// Between nodes, an all-reduce can also go up and down a tree of nodes, at 0.92 of the rate (NCCL's
// factor), with 2 * (devicesPerNode - 1) hops inside nodes and 2 * log2(nodes) between them. The
// faster of both counts, as NCCL chooses.
//
// With `stages` in [link.node], a group of several nodes works in stages (NodeCommunicator.h): each
// is a ring, and devices number i of all nodes pass on 1 / devicesPerNode of the tensor, a share.
//
//   all-gather      of a share across the nodes, then of the whole tensor inside each node
//   reduce-scatter  inside each node, then of a share across the nodes
//   all-reduce      reduce-scatter inside, all-reduce of a share across, all-gather inside
//
// `bytes` is always the size of the whole tensor, as it is after an all-gather or before a
// reduce-scatter.
#pragma once

#include "compiler/cost/DeviceSpec.h"

namespace lmc::cost {

// The devices that take part in a collective.
struct Group {
  int64_t devicesPerNode = 1;
  int64_t nodes = 1;
};

// Return the time of the collective in seconds; 0 for one device. A reduce-scatter takes the time
// of an all-gather. The spec must have every link that the group uses.
double allGatherSeconds(double bytes, const Group &group, const DeviceSpec &spec);
double allReduceSeconds(double bytes, const Group &group, const DeviceSpec &spec);

// Returns the part of a device's processors that a collective of the group has for itself: the
// larger one of the links that the group uses.
double processorsOf(const Group &group, const DeviceSpec &spec);

// The time of an all-gather over n devices as a line: latency + (n - 1) / n * bytes / bandwidth.
struct AllGatherLine {
  double latency;   // seconds
  double bandwidth; // bytes/s
};

// The group has at least two devices.
AllGatherLine allGatherLine(const Group &group, const DeviceSpec &spec);

} // namespace lmc::cost
