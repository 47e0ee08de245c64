#include "test/simt/Arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <tuple>

namespace lmc::simt {
namespace {

// In a tagged address, bits 60-63 are kMark, bits 48-55 are the number of the argument, and the low
// 48 bits count from kMiddle, so that an address before the argument keeps its tag. Neither x86-64
// nor AArch64 can map such an address.
constexpr uint64_t kMark = 5, kMiddle = uint64_t(1) << 40;
// The value of Cell::writer for a byte that atomic operations wrote. Atomic operations of several
// blocks on one byte are no race.
constexpr uint32_t kAtomic = ~0u;
constexpr uint64_t kSector = 32;

} // namespace

Memory::Memory(const std::vector<Argument> &arguments, bool count)
    : sums(arguments.size()), count(count) {
  for (const Argument &argument : arguments) {
    Buffer buffer;
    static_cast<Argument &>(buffer) = argument;
    // The tagged address has the same offset within a page as the real one, and so the same
    // alignment.
    buffer.base = kMark << 60 | uint64_t(buffers.size()) << 48 |
                  (kMiddle + (reinterpret_cast<uint64_t>(argument.data) & 4095));
    buffer.touched.assign(argument.extent(), 0);
    buffers.push_back(std::move(buffer));
  }
  placeCells();
}

void *Memory::tagged(size_t i) const { return reinterpret_cast<void *>(buffers[i].base); }

// Gives each byte of the arguments a Cell. Bytes that two arguments share have one Cell.
void Memory::placeCells() {
  std::vector<size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), 0);
  auto start = [&](size_t i) { return reinterpret_cast<uint64_t>(buffers[i].data); };
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return start(a) < start(b); });
  uint64_t regionStart = 0, regionEnd = 0, regionCell = 0, total = 0;
  for (size_t i : order) {
    uint64_t from = start(i), to = from + buffers[i].extent();
    if (from >= regionEnd) {
      regionStart = from;
      regionCell = total;
    }
    buffers[i].firstCell = regionCell + (from - regionStart);
    regionEnd = std::max(regionEnd, to);
    total = std::max(total, buffers[i].firstCell + buffers[i].extent());
  }
  cells.assign(total, Cell());
  for (Buffer &a : buffers)
    for (Buffer &b : buffers)
      if (&a != &b && b.access != Access::Write && a.firstCell < b.firstCell + b.extent() &&
          b.firstCell < a.firstCell + a.extent())
        a.overlaps = true;
}

std::string Memory::describe(size_t argument, uint64_t address, int bytes, Kind kind) const {
  const Buffer &b = buffers[argument];
  std::string what = fmt::format("a {} of {} bytes at offset {} of argument {} ({} bytes",
                                 kind == Kind::Load    ? "load"
                                 : kind == Kind::Store ? "store"
                                                       : "atomic operation",
                                 bytes, int64_t(address - b.base), argument, b.bytes);
  if (b.pitch)
    what += fmt::format(" in {} rows, {} bytes apart", b.rows, b.pitch);
  return what + ")";
}

char *Memory::refuse(const std::string &why) {
  trouble = why;
  return nullptr;
}

template <Memory::Kind kind> bool Memory::races(const Cell &cell, uint32_t block) {
  const bool otherWriter = cell.writer && cell.writer != block;
  if (kind == Kind::Load)
    return otherWriter;
  const bool otherReader =
      (cell.reader && cell.reader != block) || (cell.otherReader && cell.otherReader != block);
  if (kind == Kind::Atomic && (!cell.writer || cell.writer == kAtomic))
    return otherReader;
  return otherWriter || otherReader;
}

template <Memory::Kind kind>
uint64_t Memory::touch(Buffer &buffer, uint64_t from, uint64_t to, uint32_t block) {
  const bool mustBeWritten =
      kind == Kind::Load && buffer.access == Access::Write && !buffer.overlaps;
  Cell *const all = cells.data() + buffer.firstCell;
  for (uint64_t i = from; i < to; ++i) {
    Cell &cell = all[i];
    if (races<kind>(cell, block) || (mustBeWritten && !cell.writer))
      return i;
    if (kind != Kind::Load)
      cell.writer =
          kind == Kind::Atomic && (!cell.writer || cell.writer == kAtomic) ? kAtomic : block;
    else if (!cell.reader)
      cell.reader = block;
    else if (cell.reader != block)
      cell.otherReader = block;
    buffer.touched[i] |= kind == Kind::Load ? 1 : kind == Kind::Store ? 2 : 3;
  }
  return to;
}

std::string Memory::raceText(const Cell &cell, Kind kind, uint32_t block) const {
  auto name = [](uint32_t b) {
    return b == kAtomic ? std::string("another block (atomically)")
                        : fmt::format("block {}", b - 1);
  };
  if (cell.writer && cell.writer != block)
    return fmt::format("race between blocks: {} {} what {} wrote", name(block),
                       kind == Kind::Load ? "reads" : "writes", name(cell.writer));
  uint32_t reader = cell.reader && cell.reader != block ? cell.reader : cell.otherReader;
  return fmt::format("race between blocks: {} writes what {} read", name(block), name(reader));
}

char *Memory::resolve(const void *pointer, int bytes, Kind kind, const Asker &asker) {
  const uint64_t address = reinterpret_cast<uint64_t>(pointer);
  const size_t number = address >> 48 & 255;
  if (address >> 60 != kMark || number >= buffers.size())
    return refuse(fmt::format("an access of {} bytes of global memory at {:#x}, which belongs to "
                              "no argument",
                              bytes, address));
  Buffer &b = buffers[number];
  const int64_t offset = int64_t(address - b.base);
  auto what = [&] { return describe(number, address, bytes, kind); };
  if (offset < 0 || uint64_t(offset) + bytes > b.extent())
    return refuse("out of bounds: " + what());
  if (b.pitch && uint64_t(offset) % b.pitch + bytes > b.runBytes())
    return refuse("out of bounds: " + what() + ", between two rows");
  if (address % bytes != 0)
    return refuse("misaligned: " + what());
  if (kind != Kind::Load && b.access == Access::Read)
    return refuse("a store to an input: " + what());
  const uint64_t from = uint64_t(offset), to = from + bytes;
  const uint32_t block = asker.block + 1;
  const uint64_t wrong = kind == Kind::Load    ? touch<Kind::Load>(b, from, to, block)
                         : kind == Kind::Store ? touch<Kind::Store>(b, from, to, block)
                                               : touch<Kind::Atomic>(b, from, to, block);
  if (wrong < to) {
    const Cell &cell = cells[b.firstCell + wrong];
    if (kind == Kind::Load && !races<Kind::Load>(cell, block))
      return refuse("a result is read before it is written: " + what());
    return refuse(raceText(cell, kind, block) + "; " + what());
  }
  char *real = static_cast<char *>(b.data) + offset;
  if (count)
    for (bool store : {false, true})
      if (kind == Kind::Atomic || store == (kind == Kind::Store))
        records.push_back({asker.instruction, asker.execution, asker.warp, uint32_t(number), store,
                           bytes, reinterpret_cast<uint64_t>(real)});
  return real;
}

void Memory::endBlock() {
  auto key = [](const Record &r) {
    return std::tuple(r.warp, r.instruction, r.execution, r.argument, r.store);
  };
  std::sort(records.begin(), records.end(), [&](const Record &a, const Record &b) {
    return std::tuple_cat(key(a), std::tuple(a.address)) <
           std::tuple_cat(key(b), std::tuple(b.address));
  });
  for (size_t i = 0; i < records.size();) {
    const Record &first = records[i];
    uint64_t moved = 0, sectors = 0, end = 0, lastSector = 0;
    // Every access is aligned to its size, so no access crosses the border of a sector.
    for (; i < records.size() && key(records[i]) == key(first); ++i) {
      const Record &r = records[i];
      const uint64_t from = std::max(r.address, end), to = r.address + r.bytes;
      moved += to > from ? to - from : 0;
      end = std::max(end, to);
      sectors += r.address / kSector != lastSector;
      lastSector = r.address / kSector;
    }
    Traffic &sum = sums[first.argument];
    (first.store ? sum.stored : sum.loaded) += moved;
    (first.store ? sum.storeSectors : sum.loadSectors) += sectors;
  }
  records.clear();
}

std::string Memory::endLaunch() {
  for (size_t number = 0; number < buffers.size(); ++number) {
    const Buffer &b = buffers[number];
    const uint64_t step = b.pitch ? b.pitch : b.extent(), run = b.pitch ? b.runBytes() : b.extent();
    for (uint64_t start = 0; start < b.extent(); start += step) {
      const uint64_t end = std::min(start + run, b.extent());
      uint64_t loaded = 0, stored = 0;
      for (uint64_t i = start; i < end; ++i) {
        loaded += b.touched[i] & 1;
        stored += b.touched[i] >> 1;
      }
      sums[number].distinctLoaded += loaded;
      sums[number].distinctStored += stored;
      if (b.access != Access::Write || stored == end - start)
        continue;
      uint64_t missing = start;
      while (b.touched[missing] & 2)
        ++missing;
      return fmt::format("argument {} is not written at offset {} of {} bytes", number, missing,
                         b.bytes);
    }
  }
  return "";
}

std::string Memory::bytesOf(const Argument &argument) {
  std::string bytes;
  const uint64_t step = argument.pitch ? argument.pitch : argument.runBytes();
  for (uint64_t row = 0; row < argument.rows; ++row)
    bytes.append(static_cast<const char *>(argument.data) + row * step, argument.runBytes());
  return bytes;
}

void Memory::setBytes(const Argument &argument, const std::string &bytes) {
  const uint64_t step = argument.pitch ? argument.pitch : argument.runBytes();
  for (uint64_t row = 0; row < argument.rows; ++row)
    std::memcpy(static_cast<char *>(argument.data) + row * step,
                bytes.data() + row * argument.runBytes(), argument.runBytes());
}

} // namespace lmc::simt
