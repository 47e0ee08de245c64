// The implementations of matrix products that devices have chosen.
//
// A device times all implementations of a product. They add in different orders, so the last bits
// of their results differ. So a resumed run must use the same implementations as before. Two files
// keep choices:
//
//   CACHE/lmc/gemm.json   the choices of all runs of the user, so no product is timed twice
//   OUT/gemm.json         the choices of one run; they take precedence over those of the cache
//
// CACHE is $XDG_CACHE_HOME or ~/.cache.
//
// The fastest implementation may differ between ranks. So all ranks with equal devices use the
// choices of the lowest of these ranks (agree()). Rank 0 writes all choices to OUT/gemm.json.
#pragma once

#include "ground/support/Result.h"
#include "runtime/comm/World.h"

#include <compare>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lmc {

// Two products with equal keys may use the same choice.
struct GemmKey {
  // The device and the versions of all libraries that may compute the product:
  // "AMD EPYC, 2 threads, kernels x86-64-v4, oneDNN 2.6.3, no MKL".
  std::string device;
  // All properties of the product that may decide the choice: "f32 2048x768x4096 b^T +d".
  std::string product;

  auto operator<=>(const GemmKey &) const = default;
};

struct GemmChoice {
  std::string implementation; // a name that the device knows; the first word names the library
  std::string payload;        // data that the device also needs, such as 64 bytes in hexadecimal
  double seconds = 0;         // measured seconds of one product; 0: not measured

  auto operator<=>(const GemmChoice &) const = default;
};

class GemmChoices {
public:
  // If `measures` is true, devices time all implementations of each product that has no choice.
  // Otherwise they take a fixed choice, and the cache is not used.
  explicit GemmChoices(bool measures) : measuring(measures) {}

  bool measures() const { return measuring; }

  // Read the choices of a file, which may be missing. A file that cannot be read gives a warning.
  void readCache(const std::string &path);
  void readRun(const std::string &path) { read(path, Origin::Run); }

  // Returns the choice for `key`, if any. A device that cannot use it must add() another choice.
  std::optional<GemmChoice> find(const GemmKey &key);
  // Records the choice of a device, after timing that took `spent` seconds.
  void add(const GemmKey &key, GemmChoice choice, double spent);

  // Gives all ranks with equal devices the choices of the lowest of these ranks. Also collects the
  // choices of ranks with other devices, for writeRun(). All ranks must call it together. Returns
  // true if a choice in use has changed: the device must then call find() again. All choices in use
  // of a rank must have the same GemmKey::device.
  Result<bool> agree(World &world);

  // Adds the measured choices to the file. Other processes may do so at the same time. A failure is
  // only a warning.
  void writeCache(const std::string &path);
  // Writes all choices in use on this and on other ranks, and all choices that readRun() has read.
  Result<void> writeRun(const std::string &path) const;

  // A choice in use: one that find() returned or add() recorded.
  struct Use {
    GemmKey key;
    GemmChoice choice;
  };
  std::vector<Use> inUse() const;
  // Returns "12 shapes, 9 as in the run, 3 measured in 0.4 s; 9 MKL, 3 packed"; "" without choices.
  std::string summary() const;
  // If the run was on another device before, and both devices have a choice for the same product,
  // returns the former device; else "". The last bits of results may change with the device.
  std::string formerDevice() const;
  // Returns products for which this device could not use the choice of the run or of another rank.
  const std::vector<std::string> &rejected() const { return rejectedProducts; }
  // Returns the warnings since the last call.
  std::vector<std::string> takeWarnings() { return std::exchange(warnings, {}); }

private:
  enum class Origin { Run, Rank, Cache, Measured, Fixed }; // Rank: another rank of this run gave it
  struct Entry {
    GemmChoice choice;
    Origin origin;
    bool used = false;
  };
  void read(const std::string &path, Origin origin);

  bool measuring;
  double seconds = 0; // spent on timing
  std::map<GemmKey, Entry> entries;
  std::vector<std::string> warnings, rejectedProducts;
};

// Calls `choose`, which must find() or add() a choice for every product of a device, and then
// agree(). If this changes a rank's choices, calls `choose` again on this rank. All ranks of
// `world` must call it together. `choices` and `world` may be null.
Result<void> chooseTogether(GemmChoices *choices, World *world,
                            const std::function<Result<void>()> &choose);

// Returns the path of the user's cache; "" if neither XDG_CACHE_HOME nor HOME is set.
std::string gemmCachePath();

} // namespace lmc
