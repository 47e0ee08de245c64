// The global memory of a launch: the buffers that are its arguments, and checks of every access to
// them.
//
// A kernel receives tagged addresses instead of the real addresses of its arguments. A tagged
// address shows which argument is meant, even if it lies far outside of the argument. No memory is
// mapped at tagged addresses, so a pointer that is dereferenced without loadGlobal or storeGlobal
// faults.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lmc::simt {

enum class Access {
  Read,
  Write, // every byte is written, and read only afterwards (unless another argument overlaps)
  ReadWrite,
};

struct Argument {
  void *data = nullptr;
  uint64_t bytes = 0; // of all rows together, without the gaps
  Access access = Access::Read;
  // The argument is `rows` runs of equal size that begin `pitch` bytes apart; with pitch 0, one
  // run.
  uint64_t rows = 1, pitch = 0;

  uint64_t runBytes() const { return bytes / rows; }
  // Returns the bytes from the start of the first run to the end of the last one.
  uint64_t extent() const { return pitch ? (rows - 1) * pitch + runBytes() : bytes; }
};

// The traffic of one argument in a launch. If several lanes of a warp access a byte with one
// instruction, the byte counts once.
struct Traffic {
  uint64_t loaded = 0, stored = 0;                 // bytes, summed over instructions
  uint64_t distinctLoaded = 0, distinctStored = 0; // bytes that were accessed at least once
  uint64_t loadSectors = 0, storeSectors = 0;      // sectors of 32 bytes, summed over instructions
};

// Who makes an access: the numbers of the block and the warp, the address of the instruction, and
// how often the thread has executed this instruction before.
struct Asker {
  uint32_t block = 0, warp = 0;
  uint64_t instruction = 0;
  uint32_t execution = 0;
};

class Memory {
public:
  // If `count` is true, traffic() includes the sums over instructions, which cost a record per
  // access.
  Memory(const std::vector<Argument> &arguments, bool count);

  // Returns the tagged address that the kernel gets for argument `i`.
  void *tagged(size_t i) const;

  // Returns the real address for a tagged one. Returns null for an access that no kernel may make:
  // outside of the argument, misaligned, a store to an input, or a race with another block.
  // problem() then gives the reason. An atomic access races only with accesses that are not atomic.
  enum class Kind { Load, Store, Atomic };
  char *resolve(const void *address, int bytes, Kind kind, const Asker &asker);
  const std::string &problem() const { return trouble; }

  // Ends a block of the launch: adds its accesses to traffic().
  void endBlock();
  // Ends the launch and completes traffic(). Returns "", or a text that names a byte of an argument
  // with Access::Write that was not written.
  std::string endLaunch();
  const std::vector<Traffic> &traffic() const { return sums; }

  // Return and set the bytes of an argument, one run after the other without the gaps.
  static std::string bytesOf(const Argument &argument);
  static void setBytes(const Argument &argument, const std::string &bytes);

private:
  // The blocks that accessed one byte, as block number + 1; 0 means none. Two readers are kept, so
  // that at least one of them differs from the block that writes the byte.
  struct Cell {
    uint32_t writer = 0, reader = 0, otherReader = 0;
  };
  struct Buffer : Argument {
    uint64_t base = 0; // tagged address of the first byte
    uint64_t firstCell = 0;
    bool overlaps = false;        // a Read or ReadWrite argument shares bytes with it
    std::vector<uint8_t> touched; // per byte of the extent: 1 loaded, 2 stored
  };
  struct Record {
    uint64_t instruction;
    uint32_t execution, warp, argument;
    bool store;
    int bytes;
    uint64_t address;
  };

  void placeCells();
  char *refuse(const std::string &why);
  std::string describe(size_t argument, uint64_t address, int bytes, Kind kind) const;
  // Is an access by `block` (its number + 1) a race with those that `cell` knows?
  template <Kind kind> static bool races(const Cell &cell, uint32_t block);
  // Notes an access to bytes of an argument. Returns the first byte that may not be accessed so, or
  // `to`.
  template <Kind kind> uint64_t touch(Buffer &buffer, uint64_t from, uint64_t to, uint32_t block);
  std::string raceText(const Cell &cell, Kind kind, uint32_t block) const;

  std::vector<Buffer> buffers;
  std::vector<Cell> cells;
  std::vector<Record> records;
  std::vector<Traffic> sums;
  bool count;
  std::string trouble;
};

} // namespace lmc::simt
