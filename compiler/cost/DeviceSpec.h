// What a device can do, as data.
//
// A spec is a TOML file: compiler/cost/devices/NAME.toml, built into the programs, or any path. The
// cost model (Roofline.h) predicts from it, and a memory budget of 0 means the memory that it
// states. docs/devices.md describes the format; every number of a built-in spec has its source
// beside it.
//
// Stable: loadDeviceSpec, deviceSpecNames, defaultDeviceSpec, usableBytes, and the meaning of the
// fields below. New fields may come.
#pragma once

#include "compiler/config/Config.h"
#include "runtime/support/Result.h"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lmc::cost {

// How fast a library multiplies matrices of one dtype. See estimate(GemmWork).
struct GemmModel {
  double sustained = 0;                  // FLOP/s of all units on full tiles of endless depth
  int64_t tileRows = 1, tileColumns = 1; // of the product, computed by one unit at a time
  int64_t units = 1;                     // tiles computed at the same time (SMs, threads)
  double fixedDepth = 0; // a tile's start and end cost as much as this many more of k
  int64_t maxSplits = 1;                 // the most parts that k is cut into to fill the units
};

// Attention over `seq` tokens runs at forward * seq / (seq + forwardHalfLength) FLOP/s,
// counting only the scores that the mask leaves; the gradient likewise.
struct AttentionModel {
  DataType dtype = DataType::BF16;
  int64_t headDim = 0;
  double forward = 0, forwardHalfLength = 0;
  double backward = 0, backwardHalfLength = 0;
};

// A link between neighbours of a ring. See Collectives.h.
struct LinkModel {
  double base = 0;      // seconds of any collective, whatever its size
  double latency = 0;   // seconds of each hop
  double bandwidth = 0; // bytes/s that a device sends while receiving at the same rate
};

struct DeviceSpec {
  std::string name;        // "h100-sxm"
  std::string description; // "NVIDIA H100 SXM5, 80 GB"
  std::string arch;        // "sm_90a", "cpu"
  std::vector<std::string> defaultOf; // values of target.device: see defaultDeviceSpec
  bool host = false;                  // the device is the machine that compiles

  uint64_t memoryBytes = 0;   // what a program can allocate on an idle device
  uint64_t reserveBytes = 0;  // the part of memoryBytes left to the driver and libraries
  double memoryBandwidth = 0; // bytes/s, as specified
  double reachable = 1;       // the fraction of memoryBandwidth that good kernels reach
  uint64_t cacheBytes = 0;    // a command that touches at most this runs from the cache
  double cacheBandwidth = 0;  // bytes/s

  std::array<double, 3> peak{}; // dense FLOP/s, by DataType: what MFU is measured against
  double vectorFlops = 0;       // FLOP/s of kernels; a function such as exp counts one
  double launchSeconds = 0;     // from the end of a command to the start of the next

  std::array<GemmModel, 3> gemm;         // by DataType
  std::vector<AttentionModel> attention; // at least one
  LinkModel deviceLink, nodeLink;        // bandwidth 0: none

  double peakOf(DataType dtype) const { return peak[size_t(dtype)]; }
  // The bandwidth, in bytes/s, that a kernel reaches which touches `bytes` bytes.
  double bandwidthFor(double bytes) const {
    return bytes <= double(cacheBytes) ? cacheBandwidth : memoryBandwidth * reachable;
  }
};

// The bytes that a plan may use if memory.budget does not limit it.
inline uint64_t usableBytes(const DeviceSpec &spec) { return spec.memoryBytes - spec.reserveBytes; }

// The rates that planning passes use.
struct Rates {
  double flopsPerSecond; // of large matrix products
  double bytesPerSecond; // of kernels that stream through memory
  double launchSeconds;  // from the end of a kernel to the start of the next
};

// The rates for a pass that runs alone and for a device without a spec: those of an H100 SXM, which
// sustains about 70% of 989 TFLOP/s in dense bf16 and 90% of 3.35 TB/s (NVIDIA's data sheet). The
// gap between kernels is that of devices/h100-sxm.toml.
inline constexpr Rates kDefaultRates{700e12, 3.0e12, 2e-6};

// Returns the rates of the device for matrix products of `dtype`; kDefaultRates if `spec` is null.
Rates ratesOf(const DeviceSpec *spec, DataType dtype);

// Names of the built-in specs, sorted.
std::vector<std::string> deviceSpecNames();

// Returns the name of the built-in spec for a job on `device` if target.spec names no other: the
// spec whose key `default_of` lists `device` ("cuda:sm_90a" -> "h100-sxm"). For a plan's target
// ("cpu:x86-64-v3") the part before its last ':' is also looked up. Returns "" if no spec lists the
// device.
std::string defaultDeviceSpec(std::string_view device);

// Returns true if the text names a file: it contains '/' or ends in ".toml".
bool isSpecPath(std::string_view nameOrPath);

// Loads a spec: a built-in name, or (by isSpecPath) a file, relative to `directory`. An error says
// what is wrong; each mistake in a file is one line "FILE:LINE:COLUMN: error: ...".
Result<DeviceSpec> loadDeviceSpec(const std::string &nameOrPath, const std::string &directory = "");

// Returns the spec of a job: target.spec, or the default of target.device. If the default spec is
// of the machine that compiles, it gets that machine's memory.
Result<DeviceSpec> deviceSpecOf(const TargetConfig &target, const std::string &directory);

// Parses the text of a spec; `path` names it in errors.
Result<DeviceSpec> parseDeviceSpec(const std::string &text, const std::string &path);

} // namespace lmc::cost
