// Products of warpgroups (wgmma) in one block of the executor, and what they may read.
//
// A GPU runs such a product at some time between its issue and the wait for it, and reads shared
// memory by another path (the asynchronous proxy) than the threads write it. The rules that follow
// from this are those of GroupProducts in compiler/targets/cuda/device/platform.cuh. This class holds
// a kernel to them:
//
//   - A product runs once all 128 threads have issued it: at once, at the wait, or between the two,
//     as When says for a block. Products of a warpgroup run in their order.
//   - From its issue to the end of its wait an accumulator holds a pattern of NaN, and must keep it.
//     Registers with a factor must be the same at the wait as at the issue.
//   - All 128 threads issue the same products, after begin(), and meet in the wait.
//   - Each 16 bytes of shared memory that a product reads were written by copyAsync16, which has
//     ended, or by storeForProducts, and the thread that wrote them has called seenByProducts()
//     since. They do not change until the wait.
//
// That begin() stands behind the last use of an accumulator is not checked.
//
// Functions return "" or the text of a mistake.
#pragma once

#include "test/simt/shim/MachineTable.h"

#include <array>
#include <cstdint>
#include <deque>
#include <list>
#include <string>
#include <vector>

namespace lmc::simt {

class Warpgroups {
public:
  static constexpr uint32_t kThreads = 128;

  enum class When { AtOnce, AtTheWait, InBetween };

  // Begins a block of `threads` threads with `bytes` of shared memory, whose first byte has the
  // address `base` for a kernel.
  void startBlock(unsigned char *shared, uint32_t bytes, uint32_t base, uint32_t threads, When when);

  // Shared memory, by the offset of a chunk of 16 bytes.
  std::string copyBegins(uint32_t offset);
  void copyLands(uint32_t thread, uint32_t offset);
  std::string store(uint32_t thread, uint32_t address, const void *from, uint32_t bytes);
  void seenByProducts(uint32_t thread);

  // Products. If they run in between, `coin` decides whether those that may run do so now.
  std::string begin(uint32_t thread);
  std::string add(uint32_t thread, const GroupProduct &product, Place place, bool coin);
  std::string commit(uint32_t thread);
  std::string maybeRun(bool coin);
  // The thread waits for all rows of products but the last `pending`. If `all` is true afterwards,
  // all threads of its warpgroup do, and go on.
  std::string wait(uint32_t thread, int pending, Place place, bool &all);
  // The thread has ended.
  std::string end(uint32_t thread) const;

private:
  struct Chunk {
    uint16_t written = 0;            // a bit for each byte
    uint16_t reads = 0;              // products in flight that read it
    uint32_t copies = 0, unseen = 0; // under way; ended or stored, and not followed by a fence
  };
  struct Accumulator {
    float *d = nullptr;
    int size = 0;
    uint32_t inFlight = 0;
    int line = 0; // of the first product that adds to it
    std::array<float, 128> value{}; // what d is when its products end
  };
  struct Part { // of one thread in a product
    Accumulator *accumulator;
    const unsigned *registers; // null: the factor is in shared memory
    std::array<unsigned, 4> factor;
  };
  struct Product {
    GroupProduct shape; // of the first thread that issued it
    Place place;
    uint32_t row, issued;
    std::array<Part, kThreads> parts;
  };
  struct Thread {
    std::list<Accumulator> accumulators;
    std::vector<uint32_t> unseen; // chunks
    uint64_t issued = 0;
    uint32_t rows = 0; // committed
    bool begun = false;
  };
  struct Group {
    std::deque<Product> products; // not yet waited for
    uint64_t first = 0;                            // the number of products[0]
    uint64_t run = 0;                              // products that have run
    uint32_t waiting = 0;
    int pending = 0; // of the wait at which the threads meet
    Place place{};
  };

  std::string runUpTo(uint32_t group, uint64_t end);
  std::string run(const Product &product) const;
  std::string endWait(uint32_t group);
  std::string issue(const Product &product);
  template <typename Store>
  void readFactor(uint32_t tile, bool turned, int across, GroupProduct::Format format,
                  Store store) const;
  std::string check(uint32_t offset) const;

  unsigned char *shared = nullptr;
  uint32_t bytes = 0, base = 0;
  When when = When::AtOnce;
  std::vector<unsigned char> shadow; // chunks as they were written
  std::vector<Chunk> chunks;
  std::vector<Thread> threads;
  std::vector<Group> groups;
};

} // namespace lmc::simt
