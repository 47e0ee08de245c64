// The performance data of a device (its spec), from which the cost model (Roofline.h) predicts
// times.
//
// A spec is a TOML file (docs/devices.md): either compiler/cost/devices/NAME.toml, which is built
// into the programs, or a file at any path. In a built-in spec, a comment beside each number gives
// its source.
#pragma once

#include "ground/config/Config.h"
#include "ground/support/Result.h"

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lmc::cost {

// The speed at which a library multiplies matrices of one dtype. See estimate(GemmWork).
struct GemmModel {
  double sustained = 0;                  // FLOP/s of all units on full tiles, for very large k
  int64_t tileRows = 1, tileColumns = 1; // size of the tile of the product that one unit computes
  int64_t units = 1; // number of tiles computed at the same time (SMs or CPU threads)
  double fixedDepth = 0;                 // cost of a tile's start and end, in elements of k
  int64_t maxSplits = 1; // maximum number of parts that the sum over k is divided into
};

// The speed of a library's attention for one dtype and head dimension. With `seq` tokens, the
// forward pass runs at forward * seq / (seq + forwardHalfLength) FLOP/s. Scores that the mask
// removes do not count as FLOPs. The backward pass uses the two `backward` numbers in the same way.
struct AttentionModel {
  DataType dtype = DataType::BF16;
  int64_t headDim = 0;
  double forward = 0, forwardHalfLength = 0;
  double backward = 0, backwardHalfLength = 0;
};

// The measured rate of the target's own kernel for a matrix product with SwiGLU, divided by the
// rate of a library's product; 0: not measured. An entry holds from its `rows` up to the `rows` of
// the next entry with the same `inner` and `columns`.
struct SwigluRate {
  int64_t rows = 0, inner = 0, columns = 0; // x is [rows, inner], silu(g) u is [rows, columns]
  double forward = 0, backward = 0;
};

// A link between neighbouring devices of a ring. See Collectives.h.
struct LinkModel {
  double base = 0;      // seconds that every collective takes, whatever its size
  double latency = 0;   // seconds per hop
  double bandwidth = 0; // bytes/s that a device sends while it receives at the same rate
  // The share of a device's processors (a GPU's SMs) that a collective over the link occupies.
  // Commands beside it run at 1 - processors of their speed.
  double processors = 0;
  // Only for the link between nodes: true if collectives work in stages (Collectives.h).
  bool stages = false;
};

// The name of a data type in spec files.
struct DataTypeName {
  const char *name;
  DataType dtype;
};
inline constexpr DataTypeName kDataTypeNames[] = {
    {"bf16", DataType::BF16}, {"f32", DataType::F32}, {"f64", DataType::F64}};

struct DeviceSpec {
  std::string name;        // "h100-sxm"
  std::string description; // "NVIDIA H100 SXM5, 80 GB"
  std::string arch;        // "sm_90a", "cpu"
  // The values of target.device that use this spec by default; see defaultDeviceSpec.
  std::vector<std::string> defaultOf;
  bool host = false; // true if the device is the machine that compiles

  uint64_t memoryBytes = 0;   // bytes that a program can allocate on an idle device
  uint64_t reserveBytes = 0;  // the part of memoryBytes that the driver and libraries need
  double memoryBandwidth = 0; // bytes/s, from the data sheet
  double reachable = 1;       // the fraction of memoryBandwidth that good kernels reach
  uint64_t cacheBytes = 0;    // a command that touches at most this many bytes runs from the cache
  double cacheBandwidth = 0;  // bytes/s of a command that runs from the cache

  // Dense FLOP/s, by DataType. MFU is relative to this peak.
  std::array<double, 3> peak{};
  double peakFp8 = 0; // the same of products of 8-bit floats; 0: the device has none
  // FLOP/s of generated kernels; a function such as exp counts as one operation.
  double vectorFlops = 0;
  // The clock of a GPU's SMs in Hz, 0 for other devices. `clock` is the clock in a training step,
  // where the power limit lowers it; `clockAlone` is the clock while a kernel runs alone.
  double clock = 0, clockAlone = 0;
  double launchSeconds = 0; // time from the end of a command to the start of the next

  std::array<GemmModel, 3> gemm;         // indexed by DataType
  GemmModel gemmFp8; // of products of 8-bit floats; those of bf16 without peakFp8
  // The maximum number of bytes of scratch memory for a matrix product on a GPU. The default is
  // NVIDIA's recommendation for Hopper (cuBLAS documentation, cublasSetWorkspace).
  uint64_t gemmWorkspaceBytes = uint64_t(32) << 20;
  std::vector<AttentionModel> attention; // one or more, each of a dtype and head size
  std::vector<SwigluRate> swiglu;        // may be empty
  LinkModel deviceLink, nodeLink;        // a bandwidth of 0 means that the link does not exist

  double peakOf(DataType dtype) const { return peak[size_t(dtype)]; }
  // Returns the bandwidth, in bytes/s, of a kernel that touches `bytes` bytes.
  double bandwidthFor(double bytes) const {
    return bytes <= double(cacheBytes) ? cacheBandwidth : memoryBandwidth * reachable;
  }
};

// Returns the number of bytes that a plan may use if memory.budget is 0.
inline uint64_t usableBytes(const DeviceSpec &spec) { return spec.memoryBytes - spec.reserveBytes; }

// The rates that planning passes use.
struct Rates {
  double flopsPerSecond; // rate of large matrix products
  double bytesPerSecond; // rate of kernels that stream through memory
  double launchSeconds;  // time from the end of a kernel to the start of the next
};

// The rates for a planning pass that has no device spec. They assume an H100 SXM, with 70% of 989
// TFLOP/s in dense bf16 and 90% of 3.35 TB/s (peaks of NVIDIA's data sheet). The time between
// kernels is that of devices/h100-sxm.toml.
inline constexpr Rates kDefaultRates{700e12, 3.0e12, 2e-6};

// Returns the rates of the device for matrix products of `dtype`; kDefaultRates if `spec` is null.
Rates ratesOf(const DeviceSpec *spec, DataType dtype);

// Returns the names of the built-in specs, sorted.
std::vector<std::string> deviceSpecNames();

// Returns the name of the built-in spec whose list `default_of` contains `device`: "h100-sxm" for
// "cuda:sm_90a". If there is no such spec, looks for the part before the last ':': "cpu" for
// "cpu:x86-64-v3". Returns "" if no spec lists that part either.
std::string defaultDeviceSpec(std::string_view device);

// Returns true if the text names a file: it contains '/' or ends in ".toml".
bool isSpecPath(std::string_view nameOrPath);

// Loads a spec: a built-in one by name, or (if isSpecPath) a file, whose path is relative to
// `directory`. For each mistake in a file, the error has a line "FILE:LINE:COLUMN: error: ...".
Result<DeviceSpec> loadDeviceSpec(const std::string &nameOrPath, const std::string &directory = "");

// Returns the spec of a job: the one that target.spec names, or the default of target.device. A
// default spec with `host` gets the memory size of this machine.
Result<DeviceSpec> deviceSpecOf(const TargetConfig &target, const std::string &directory);

// Parses the text of a spec; errors name `path`.
Result<DeviceSpec> parseDeviceSpec(const std::string &text, const std::string &path);

// Comments for a spec's numbers and sections. Keys are, for example, "memory.bandwidth",
// "gemm.bf16", and "attention.0" for the first [[attention]] table.
using SpecComments = std::map<std::string, std::string>;

// Returns the spec as TOML that parseDeviceSpec reads. Numbers have six significant digits.
// `header` is put before the first key; it must have only complete comments, or be "".
std::string deviceSpecToml(DeviceSpec spec, const std::string &header = "",
                           const SpecComments &comments = {});

} // namespace lmc::cost
