// The global memory of a launch: the buffers that are its arguments, and checks of every access to
// them.
//
// A kernel receives tagged addresses instead of the buffers' own; no memory is mapped at them. An
// access through a tagged address shows which argument is meant, however far outside of it the
// address is. A pointer that is dereferenced without loadGlobal or storeGlobal faults.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lmc::simt {

enum class Access {
  Read,
  Write,     // all of it is written, and none read before that, unless it lies over another argument
  ReadWrite,
};

struct Argument {
  void *data = nullptr;
  uint64_t bytes = 0; // of all rows together
  Access access = Access::Read;
  // `rows` equal runs of bytes that begin `pitch` bytes apart; with pitch 0, one dense run.
  uint64_t rows = 1, pitch = 0;

  uint64_t runBytes() const { return bytes / rows; }
  // The bytes from the first to the end of the last run.
  uint64_t extent() const { return pitch ? (rows - 1) * pitch + runBytes() : bytes; }
};

// The traffic of one argument in a launch. An instruction of a warp moves a byte once, however many
// lanes access it.
struct Traffic {
  uint64_t loaded = 0, stored = 0;                 // bytes, summed over instructions
  uint64_t distinctLoaded = 0, distinctStored = 0; // bytes that were accessed at all
  uint64_t loadSectors = 0, storeSectors = 0;      // of 32 bytes, summed over instructions
};

// The origin of an access: block, warp, and the execution of an instruction, each by number.
struct Asker {
  uint32_t block = 0, warp = 0;
  uint64_t instruction = 0;
  uint32_t execution = 0;
};

class Memory {
public:
  // If `count`, traffic() is computed, which costs a record per access.
  Memory(const std::vector<Argument> &arguments, bool count);

  // Returns the tagged address that the kernel gets for argument `i`.
  void *tagged(size_t i) const;

  // Returns the memory at a tagged address. Returns null for an access that no kernel may make:
  // outside of the argument, misaligned, a store to an input, or a race with another block.
  // problem() then gives the reason. An atomic access races only with plain ones.
  enum class Kind { Load, Store, Atomic };
  char *resolve(const void *address, int bytes, Kind kind, const Asker &asker);
  const std::string &problem() const { return trouble; }

  // Adds up the records of a block.
  void endBlock();
  // Computes traffic(). Returns a description of the bytes left unwritten, or "".
  std::string endLaunch();
  const std::vector<Traffic> &traffic() const { return sums; }

  // The bytes of an argument, one run after the other.
  static std::string bytesOf(const Argument &argument);
  static void setBytes(const Argument &argument, const std::string &bytes);

private:
  // The blocks that accessed a byte, counted from 1; 0 means none.
  struct Cell {
    uint32_t writer = 0, reader = 0, otherReader = 0;
  };
  struct Buffer : Argument {
    uint64_t base = 0;       // tagged address
    uint64_t firstCell = 0;
    bool overlaps = false;   // with an argument that may hold values before the launch
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
  bool races(Cell &cell, Kind kind, uint32_t block);
  std::string raceText(const Cell &cell, Kind kind, uint32_t block) const;

  std::vector<Buffer> buffers;
  std::vector<Cell> cells;
  std::vector<Record> records;
  std::vector<Traffic> sums;
  bool count;
  std::string trouble;
};

} // namespace lmc::simt
