// The global memory of a launch: the buffers that are its arguments, and a watch over every
// access to them.
//
// A kernel does not get the buffers' addresses but tagged ones, which no memory is mapped at:
// an access through them says which argument it means, however far off it is, and a pointer
// that is dereferenced past loadGlobal and storeGlobal faults.
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
  // `rows` equal runs of bytes that start `pitch` bytes apart; pitch 0: one dense run.
  uint64_t rows = 1, pitch = 0;

  uint64_t runBytes() const { return bytes / rows; }
  // From the first byte to the last.
  uint64_t extent() const { return pitch ? (rows - 1) * pitch + runBytes() : bytes; }
};

// What a launch moved of one argument. An instruction of a warp moves a byte once, however
// many lanes ask for it.
struct Traffic {
  uint64_t loaded = 0, stored = 0;                 // bytes, by all instructions
  uint64_t distinctLoaded = 0, distinctStored = 0; // bytes that were touched at all
  uint64_t loadSectors = 0, storeSectors = 0;      // of 32 bytes, by all instructions
};

// Who asks: blocks and warps by number, and which execution of which instruction it is.
struct Asker {
  uint32_t block = 0, warp = 0;
  uint64_t instruction = 0;
  uint32_t execution = 0;
};

class Memory {
public:
  // With `count`, traffic() is filled; it costs a record per access.
  Memory(const std::vector<Argument> &arguments, bool count);

  // What the kernel gets for argument `i`.
  void *tagged(size_t i) const;

  // The memory behind a tagged address. Null for an access that no kernel may make (outside of
  // the argument, misaligned, a store to an input, or a race with another block), then
  // problem() says why. An atomic access races with plain ones only.
  enum class Kind { Load, Store, Atomic };
  char *resolve(const void *address, int bytes, Kind kind, const Asker &asker);
  const std::string &problem() const { return trouble; }

  // Sums up the records of a block.
  void endBlock();
  // "" or what was left unwritten; fills traffic().
  std::string endLaunch();
  const std::vector<Traffic> &traffic() const { return sums; }

  // Bytes as they lie in memory, one run after the other.
  static std::string bytesOf(const Argument &argument);
  static void setBytes(const Argument &argument, const std::string &bytes);

private:
  // Blocks that touched a byte, counted from 1; 0: none.
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
