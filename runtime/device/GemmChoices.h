// The implementations of matrix products that devices have chosen, kept in files.
//
// Which implementation of a product is the fastest depends on the shape, the machine and the
// versions of its libraries, so a device times all of them. The last bits of a result depend on the
// order in which an implementation adds, so a run that is resumed must use the same implementation
// as before. Two files therefore keep choices:
//
//   CACHE/lmc/gemm.json   the choices of the user's runs: no product is timed a second time
//   OUT/gemm.json         the choices of one run; they take precedence over those of the cache
//
// CACHE is $XDG_CACHE_HOME or ~/.cache.
//
// Each rank of a run times products, and ranks may measure different implementations as fastest.
// All ranks with equal devices then take the choices of the lowest of these ranks (agree()). There
// is thus one choice per device and product, and rank 0 writes all of them to OUT/gemm.json.
#pragma once

#include "ground/support/Result.h"
#include "runtime/comm/World.h"

#include <compare>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lmc {

// Two products with equal keys may use the same choice.
struct GemmKey {
  // The device and the versions of all libraries that may compute the product:
  // "AMD EPYC, 2 threads, kernels x86-64-v4, oneDNN 2.6.3, no MKL".
  std::string device;
  // The shape, layouts, dtypes, and all other properties on which an implementation may depend:
  // "f32 2048x768x4096 b^T +d".
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
  // With `measures`, devices time the implementations of each product that has no choice. Without
  // it they take a fixed choice, and the cache is neither read nor written.
  explicit GemmChoices(bool measures) : measuring(measures) {}

  bool measures() const { return measuring; }

  // Read the choices of a file. A missing file counts as one without choices. So does a file that
  // cannot be read, which also gives a warning.
  void readCache(const std::string &path);
  void readRun(const std::string &path);

  // Returns the choice for `key`, if there is one. A device that cannot use it must call add() with
  // another; the last bits of a resumed run's results may then differ from those before.
  std::optional<GemmChoice> find(const GemmKey &key);
  // Records the choice that a device has made, after timing that took `spent` seconds.
  void add(const GemmKey &key, GemmChoice choice, double spent);

  // Replaces the choices in use by those of the lowest rank with an equal device. Also adds the
  // choices of ranks with other devices, only so that writeRun() writes them. All ranks must call
  // it together. All choices in use of one rank must have the same GemmKey::device. Returns true if
  // a choice in use has changed: the device must then call find() again.
  Result<bool> agree(World &world);

  // Adds the measured choices to the file. Other processes may do so at the same time. If the file
  // cannot be written, there is a warning.
  void writeCache(const std::string &path);
  // Writes the choices in use, those of other ranks, and all others that readRun() read.
  Result<void> writeRun(const std::string &path) const;

  // A choice in use: one that find() returned or add() recorded.
  struct Use {
    GemmKey key;
    GemmChoice choice;
  };
  std::vector<Use> inUse() const;
  // Returns the number of choices in use by origin and by library: "12 shapes, 9 as in the run,
  // 3 measured in 0.4 s; 9 MKL, 3 packed"; "" if no choice is in use.
  std::string summary() const;
  // Returns the device that the run used before, if readRun() read a choice of that device for a
  // product for which this device has taken another one. The last bits of the run's results then
  // differ from now on. Returns "" if there is no such product.
  std::string formerDevice() const;
  // Returns the products for which the device could not use the choice of the run or of a rank.
  const std::vector<std::string> &rejected() const { return rejectedProducts; }
  // Returns the warnings since the last call.
  std::vector<std::string> takeWarnings();

private:
  enum class Origin { Run, Rank, Cache, Measured, Fixed }; // Rank: another rank of this run
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

// Calls `choose`, which finds or makes all choices of a device. With several ranks, then calls
// agree(), and calls `choose` again on each rank whose choices have changed. All ranks of `world`
// must call it together. `choices` and `world` may be null.
Result<void> chooseTogether(GemmChoices *choices, World *world,
                            const std::function<Result<void>()> &choose);

// Returns the path of the user's cache; "" if neither XDG_CACHE_HOME nor HOME is set.
std::string gemmCachePath();

} // namespace lmc
