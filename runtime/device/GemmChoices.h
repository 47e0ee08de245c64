// The implementations of matrix products that devices have chosen, kept in files.
//
// Which implementation of a product is the fastest depends on the shape, the machine and the
// versions of its libraries, so a device times them. How an implementation orders its sums decides
// the last bits of the result, so a run that goes on must take the same one. Two files therefore
// hold choices:
//
//   CACHE/lmc/gemm.json   the user's: a product that was timed once is not timed again
//   OUT/gemm.json         of a run: what it uses. It precedes the cache
//
// CACHE is $XDG_CACHE_HOME or ~/.cache.
//
// The ranks of a run time products at the same time, and may find other ones the fastest. Then all
// ranks with equal devices take the choices of the lowest such rank (agree()). So the choices for
// each device are one, and OUT/gemm.json, which rank 0 writes, has those for all devices.
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

  // Read the choices of a file. A missing file has none. A file that cannot be read has none
  // either, and becomes a warning.
  void readCache(const std::string &path);
  void readRun(const std::string &path);

  // Returns the choice for `key`, if there is one. A device that cannot use the choice calls add(),
  // and then the last bits of the run's results may differ from that start on.
  std::optional<GemmChoice> find(const GemmKey &key);
  // Records the choice that a device has made, after timing that took `spent` seconds.
  void add(const GemmKey &key, GemmChoice choice, double spent);

  // Replaces the choices in use by those of the lowest rank with an equal device, and adds those of
  // other devices, which are only written. All ranks call it together; the keys of a rank's choices
  // in use have one device. Returns true if a choice in use is another one now: then the device
  // must call find() again.
  Result<bool> agree(World &world);

  // Adds the measured choices to the file. Other processes may do so at the same time. A file that
  // cannot be written becomes a warning.
  void writeCache(const std::string &path);
  // Writes the choices in use, those of other ranks, and those that were read from the run for
  // other devices.
  Result<void> writeRun(const std::string &path) const;

  // A choice in use: one that find() returned or add() recorded.
  struct Use {
    GemmKey key;
    GemmChoice choice;
  };
  std::vector<Use> inUse() const;
  // Returns "12 shapes, 3 measured in 0.4 s, 9 as in the run; 9 MKL, 3 packed"; "" without any.
  std::string summary() const;
  // Returns the former device of the run if this device could not take over the run's choice for a
  // product, so that the run's last bits differ from now on; "": there is none.
  std::string formerDevice() const;
  // Returns the products whose choice in the run the device could not use.
  const std::vector<std::string> &rejected() const { return rejectedProducts; }
  // Returns the warnings since the last call.
  std::vector<std::string> takeWarnings();

private:
  enum class Origin { Run, Rank, Cache, Measured, Fixed }; // Rank: of another rank
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

// Calls `choose`, with which a device makes or looks up its choices. If there are several ranks,
// has them agree, and calls it again where choices have changed. All ranks of `world` call it
// together. `choices` and `world` may be null.
Result<void> chooseTogether(GemmChoices *choices, World *world,
                            const std::function<Result<void>()> &choose);

// Returns the path of the user's cache; "" if neither XDG_CACHE_HOME nor HOME is set.
std::string gemmCachePath();

} // namespace lmc
