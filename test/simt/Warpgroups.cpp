#include "test/simt/Warpgroups.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace lmc::simt {

namespace {

constexpr uint32_t kChunk = 16;
constexpr int kElements = kChunk / sizeof(uint16_t); // of a chunk
constexpr uint16_t kAllBytes = 0xffff;
constexpr uint32_t kPoison = 0x7fd1a57e; // NaN; of an accumulator whose products are in flight
constexpr int kRows = 64, kTerms = 16, kMostTerms = 32;           // in bf16, and in 8 bits
constexpr int kRowBytes = 128, kTurnedTileBytes = 64 * kRowBytes; // of a tile; see platform.cuh

bool isSame(const Place &a, const Place &b) {
  return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

bool isSame(const GroupProduct &a, const GroupProduct &b) {
  return a.columns == b.columns && a.turnedA == b.turnedA && a.turnedB == b.turnedB &&
         a.fresh == b.fresh && a.format == b.format &&
         (a.registers == nullptr) == (b.registers == nullptr) && a.a == b.a && a.b == b.b;
}

float fromBf16(uint32_t half) { return std::bit_cast<float>(half << 16); }

// Returns the number of an 8-bit float (OFP8): NaN for infinity.
float fromCode(uint32_t code, GroupProduct::Format format) {
  const int mantissaBits = format == GroupProduct::E4M3 ? 3 : 2;
  const int bias = format == GroupProduct::E4M3 ? 7 : 15;
  const int mantissa = int(code & ((1u << mantissaBits) - 1));
  const int exponent = int(code & 0x7f) >> mantissaBits;
  const bool isFinite = format == GroupProduct::E4M3 ? (code & 0x7f) != 0x7f : exponent != 31;
  const float size = std::ldexp(float(exponent ? mantissa + (1 << mantissaBits) : mantissa),
                                std::max(exponent, 1) - bias - mantissaBits);
  return !isFinite ? NAN : code & 0x80 ? -size : size;
}

bool isPoisoned(const float *d, int size) {
  for (int i = 0; i < size; ++i)
    if (std::bit_cast<uint32_t>(d[i]) != kPoison)
      return false;
  return true;
}

} // namespace

void Warpgroups::startBlock(unsigned char *at, uint32_t size, uint32_t address, uint32_t count,
                            When orderOfProducts) {
  shared = at;
  when = orderOfProducts;
  bytes = size;
  base = address;
  const size_t all = (size + kChunk - 1) / kChunk;
  shadow.resize(all * kChunk);
  chunks.assign(all, {});
  threads.clear();
  threads.resize(count);
  groups.clear();
  groups.resize(count / kThreads);
}

//===--------------------------------------------------------------------===//
// Shared memory

constexpr const char *kReadInFlight =
    "byte {} of shared memory is written while a product in flight reads it: the tile is written too early";

std::string Warpgroups::copyBegins(uint32_t offset) {
  Chunk &chunk = chunks[offset / kChunk];
  ++chunk.copies;
  return chunk.reads > 0 ? fmt::format(kReadInFlight, offset) : "";
}

void Warpgroups::copyLands(uint32_t thread, uint32_t offset) {
  const uint32_t number = offset / kChunk;
  Chunk &chunk = chunks[number];
  --chunk.copies;
  ++chunk.unseen;
  chunk.written = kAllBytes;
  std::memcpy(&shadow[size_t(number) * kChunk], shared + size_t(number) * kChunk, kChunk);
  threads[thread].unseen.push_back(number);
}

std::string Warpgroups::store(uint32_t thread, uint32_t address, const void *from, uint32_t size) {
  const uint32_t offset = address - base;
  if (address < base || uint64_t(offset) + size > bytes)
    return fmt::format("out of bounds: storeForProducts of {} bytes at byte {} of the block's {} bytes of "
                       "shared memory",
                       size, int64_t(address) - int64_t(base), bytes);
  if (offset % size)
    return fmt::format("misaligned: storeForProducts of {} bytes at byte {} of shared memory", size, offset);
  if (threads[thread].begun)
    return "storeForProducts between begin() and commit(): the compiler may move it behind a product";
  const uint32_t number = offset / kChunk;
  Chunk &chunk = chunks[number];
  if (chunk.reads > 0)
    return fmt::format(kReadInFlight, offset);
  std::memcpy(shared + offset, from, size);
  std::memcpy(&shadow[offset], from, size);
  chunk.written |= uint16_t(((1u << size) - 1) << offset % kChunk);
  ++chunk.unseen;
  threads[thread].unseen.push_back(number);
  return "";
}

void Warpgroups::seenByProducts(uint32_t thread) {
  for (uint32_t number : threads[thread].unseen)
    --chunks[number].unseen;
  threads[thread].unseen.clear();
}

// Whether a product may read the chunk at `offset`.
std::string Warpgroups::check(uint32_t offset) const {
  if (uint64_t(offset) + kChunk > bytes)
    return fmt::format("out of bounds: a product reads byte {} of the block's {} bytes of shared memory",
                       int32_t(offset), bytes);
  const Chunk &chunk = chunks[offset / kChunk];
  if (chunk.copies > 0)
    return fmt::format("a product reads byte {} of shared memory while an asynchronous copy to it is under "
                       "way: copyAsyncWait or a barrier is missing",
                       offset);
  if (chunk.written != kAllBytes)
    return fmt::format("a product reads byte {} of shared memory, which neither copyAsync16 nor "
                       "storeForProducts has written",
                       offset);
  if (chunk.unseen > 0)
    return fmt::format("a product reads byte {} of shared memory, and seenByProducts() is missing behind "
                       "the write",
                       offset);
  if (std::memcmp(&shadow[offset / kChunk * kChunk], shared + offset / kChunk * kChunk, kChunk) != 0)
    return fmt::format("a product reads byte {} of shared memory, which a plain store has changed: "
                       "use storeForProducts",
                       offset);
  return "";
}

//===--------------------------------------------------------------------===//
// Products

std::string Warpgroups::begin(uint32_t thread) {
  if (thread / kThreads >= groups.size())
    return "products of warpgroups in a block that has no whole warpgroup here";
  threads[thread].begun = true;
  return "";
}

std::string Warpgroups::commit(uint32_t thread) {
  if (!threads[thread].begun)
    return "commit() without begin()";
  threads[thread].begun = false;
  ++threads[thread].rows;
  return "";
}

std::string Warpgroups::add(uint32_t number, const GroupProduct &product, Place place, bool coin) {
  Thread &thread = threads[number];
  if (!thread.begun)
    return "a product of a warpgroup without begin() before it";
  if ((!product.registers && product.a % kChunk) || product.b % kChunk)
    return "misaligned: the address of a factor is no multiple of 16";
  Group &group = groups[number / kThreads];
  if (thread.issued - group.first == group.products.size())
    group.products.push_back({product, place, thread.rows, 0, {}});
  Product &whole = group.products[thread.issued - group.first];
  if (!isSame(whole.place, place) || !isSame(whole.shape, product) || whole.row != thread.rows)
    return fmt::format("a product in divergent code: threads of a warpgroup issue different products "
                       "(lines {} and {}, rows {} and {}, columns {} and {})",
                       whole.place.line, place.line, whole.row, thread.rows, whole.shape.columns,
                       product.columns);
  const int size = product.columns / 2;
  Accumulator *accumulator = nullptr;
  for (Accumulator &each : thread.accumulators)
    if (each.d < product.d + size && product.d < each.d + each.size)
      accumulator = &each;
  if (accumulator && (accumulator->d != product.d || accumulator->size != size))
    return "a product adds to a part of an accumulator that another product adds to";
  if (!accumulator) {
    accumulator = &thread.accumulators.emplace_back();
    accumulator->d = product.d;
    accumulator->size = size;
    accumulator->line = place.line;
    std::memcpy(accumulator->value.data(), product.d, size_t(size) * sizeof(float));
    for (int i = 0; i < size; ++i)
      product.d[i] = std::bit_cast<float>(kPoison);
  } else if (!isPoisoned(product.d, size)) {
    return "an accumulator has been written while a product that adds to it is in flight";
  }
  ++accumulator->inFlight;
  Part &part = whole.parts[number % kThreads];
  part = {accumulator, product.registers, {}};
  if (product.registers)
    std::memcpy(part.factor.data(), product.registers, sizeof(part.factor));
  ++thread.issued;
  if (++whole.issued == kThreads)
    if (std::string mistake = issue(whole); !mistake.empty())
      return mistake;
  const bool now = when == When::AtOnce || (when == When::InBetween && coin);
  return now ? runUpTo(number / kThreads, thread.issued) : "";
}

std::string Warpgroups::maybeRun(bool coin) {
  std::string mistake;
  coin = coin && when == When::InBetween;
  for (uint32_t group = 0; coin && mistake.empty() && group < groups.size(); ++group)
    mistake = runUpTo(group, groups[group].first + groups[group].products.size());
  return mistake;
}

// Runs the products of a group before the number `end`, up to the first that not all have issued.
std::string Warpgroups::runUpTo(uint32_t number, uint64_t end) {
  Group &group = groups[number];
  for (; group.run < end; ++group.run) {
    const Product &product = group.products[group.run - group.first];
    if (product.issued < kThreads)
      return "";
    if (std::string mistake = run(product); !mistake.empty())
      return fmt::format("{}; the product of line {}", mistake, product.place.line);
  }
  return "";
}

// Where the element `at` across the sum, of term k, of a factor is: of a row of a, or a column of b.
static uint32_t addressOf(uint32_t tile, bool turned, int at, int k) {
  if (turned)
    tile += uint32_t(at / 64 * kTurnedTileBytes + k * kRowBytes + at % 64 * 2);
  else
    tile += uint32_t(at * kRowBytes + k * 2);
  return tile ^ (tile >> 7 & 7) << 4;
}

// Calls visit(address, at, k) for each chunk of a factor, whose first element is of term k and at
// `at` across the sum, until that returns a mistake. The next elements are turned ? at + 1 : k + 1.
template <typename Visit>
static std::string forEachChunk(uint32_t tile, bool turned, int across, Visit visit) {
  for (int at = 0; at < across; at += turned ? kElements : 1)
    for (int k = 0; k < kTerms; k += turned ? 1 : kElements)
      if (std::string mistake = visit(addressOf(tile, turned, at, k), at, k); !mistake.empty())
        return mistake;
  return "";
}

// The same for each chunk of shared memory that a product reads, with visit(address).
template <typename Visit> static std::string forEachChunk(const GroupProduct &shape, Visit visit) {
  auto chunk = [&](uint32_t address, int, int) { return visit(address); };
  std::string mistake = shape.registers ? "" : forEachChunk(shape.a, shape.turnedA, kRows, chunk);
  return mistake.empty() ? forEachChunk(shape.b, shape.turnedB, shape.columns, chunk) : mistake;
}

// Calls store(at, k, value) for each element of a factor.
template <typename Store>
void Warpgroups::readFactor(uint32_t tile, bool turned, int across, GroupProduct::Format format,
                            Store store) const {
  (void)forEachChunk(tile, turned, across, [&](uint32_t address, int at, int k) {
    uint16_t halves[kElements];
    std::memcpy(halves, shared + (address - base), kChunk);
    for (int i = 0; i < kElements; ++i) {
      if (format == GroupProduct::BF16) {
        store(turned ? at + i : at, turned ? k : k + i, fromBf16(halves[i]));
        continue;
      }
      store(at, 2 * (k + i), fromCode(halves[i] & 0xffu, format));
      store(at, 2 * (k + i) + 1, fromCode(uint32_t(halves[i]) >> 8, format));
    }
    return std::string();
  });
}

// All threads have issued the product: it may run from now on.
std::string Warpgroups::issue(const Product &product) {
  return forEachChunk(product.shape, [&](uint32_t address) {
    std::string mistake = check(address - base);
    if (mistake.empty())
      ++chunks[(address - base) / kChunk].reads;
    return mistake;
  });
}

// Computes d += a b, or d = a b, of m64nNk16 or m64nNk32 (PTX ISA, asynchronous warpgroup-level
// matrix instructions). platform.cuh says which elements a thread holds.
std::string Warpgroups::run(const Product &product) const {
  const GroupProduct &shape = product.shape;
  const int columns = shape.columns;
  // A plain store may have changed a tile since the issue.
  if (auto mistake = forEachChunk(shape, [&](uint32_t address) { return check(address - base); }); !mistake.empty())
    return mistake;
  const int terms = shape.format == GroupProduct::BF16 ? kTerms : kMostTerms;
  float a[kRows][kMostTerms];
  static thread_local struct {
    float b[kMostTerms][256], sums[kRows][256];
  } scratch; // not on the stack of a thread of the block
  auto &[b, sums] = scratch;
  if (shape.registers) {
    for (uint32_t thread = 0; thread < kThreads; ++thread) {
      const auto &factor = product.parts[thread].factor;
      const int row = int(thread / 32 * 16 + thread % 32 / 4), term = int(thread % 4 * 2);
      for (int word = 0; word < 4; ++word)
        for (int half = 0; half < 2; ++half)
          a[row + word % 2 * 8][term + word / 2 * 8 + half] =
              fromBf16(factor[size_t(word)] >> (16 * half) & 0xffff);
    }
  } else {
    readFactor(shape.a, shape.turnedA, kRows, shape.format,
               [&](int row, int k, float x) { a[row][k] = x; });
  }
  readFactor(shape.b, shape.turnedB, columns, shape.format,
             [&b = b](int column, int k, float x) { b[k][column] = x; });
  for (int row = 0; row < kRows; ++row) {
    for (int column = 0; column < columns; ++column)
      sums[row][column] = 0;
    for (int k = 0; k < terms; ++k)
      for (int column = 0; column < columns; ++column)
        sums[row][column] += a[row][k] * b[k][column];
  }
  for (uint32_t thread = 0; thread < kThreads; ++thread) {
    auto &value = product.parts[thread].accumulator->value;
    const int row = int(thread / 32 * 16 + thread % 32 / 4), column = int(thread % 4 * 2);
    for (int i = 0; i < columns / 2; ++i) {
      const float sum = sums[row + i / 2 % 2 * 8][i / 4 * 8 + column + i % 2];
      value[size_t(i)] = (shape.fresh ? 0 : value[size_t(i)]) + sum;
    }
  }
  return "";
}

std::string Warpgroups::wait(uint32_t number, int pending, Place place, bool &all) {
  all = false;
  if (number / kThreads >= groups.size())
    return "products of warpgroups in a block that has no whole warpgroup here";
  Group &group = groups[number / kThreads];
  if (group.waiting == 0) {
    group.pending = pending;
    group.place = place;
  } else if (!isSame(group.place, place) || group.pending != pending) {
    return fmt::format("a wait for products in divergent code: threads of a warpgroup wait in lines {} and {}",
                       group.place.line, place.line);
  }
  if (++group.waiting < kThreads)
    return "";
  all = true;
  return endWait(number / kThreads);
}

// All threads of the group wait.
std::string Warpgroups::endWait(uint32_t number) {
  Group &group = groups[number];
  Thread *members = &threads[size_t(number) * kThreads];
  group.waiting = 0;
  for (uint32_t i = 0; i < kThreads; ++i) {
    if (members[i].rows != members[0].rows || members[i].issued != members[0].issued)
      return fmt::format("products in divergent code: of a warpgroup, thread {} has issued {} products in {} "
                         "rows, and thread {} {} in {}",
                         number * kThreads, members[0].issued, members[0].rows,
                         number * kThreads + i, members[i].issued, members[i].rows);
  }
  uint64_t end = group.first;
  for (const auto &product : group.products)
    if (product.row + uint32_t(group.pending) < members[0].rows)
      ++end;
  if (std::string mistake = runUpTo(number, end); !mistake.empty())
    return mistake;
  for (; group.first < end; ++group.first) {
    const Product &product = group.products.front();
    (void)forEachChunk(product.shape, [&](uint32_t address) {
      --chunks[(address - base) / kChunk].reads;
      return std::string();
    });
    for (const Part &part : product.parts) {
      if (part.registers &&
          std::memcmp(part.factor.data(), part.registers, sizeof(part.factor)) != 0)
        return fmt::format("registers with a factor have been written while the product of line {} that "
                           "reads them is in flight",
                           product.place.line);
      --part.accumulator->inFlight;
    }
    group.products.pop_front();
  }
  for (uint32_t i = 0; i < kThreads; ++i)
    for (Accumulator &accumulator : members[i].accumulators) {
      if (!isPoisoned(accumulator.d, accumulator.size))
        return "an accumulator has been written while a product that adds to it is in flight";
      if (accumulator.inFlight == 0)
        std::memcpy(accumulator.d, accumulator.value.data(),
                    size_t(accumulator.size) * sizeof(float));
    }
  for (uint32_t i = 0; i < kThreads; ++i)
    members[i].accumulators.remove_if([](const Accumulator &each) { return each.inFlight == 0; });
  return "";
}

std::string Warpgroups::end(uint32_t thread) const {
  if (thread / kThreads < groups.size() && !threads[thread].accumulators.empty())
    return fmt::format("a thread returns while its product of line {} is in flight",
                       threads[thread].accumulators.front().line);
  return "";
}

} // namespace lmc::simt
