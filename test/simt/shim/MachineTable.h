// The functions of the executor (test/simt/Executor.cpp) that a kernel compiled for the
// host calls. The kernel's object has one pointer to a table of them, `lmcMachine`, which the
// executor sets.
#pragma once

namespace lmc::simt {

struct Index {
  unsigned x, y, z;
};

// Operations that a whole warp executes together. Each lane passes `value` and, if the comment
// names it, `operand`.
enum class Collective : int {
  SyncWarp,
  Shuffle,     // operand: the lane whose value is read; 32 or more: the own lane
  Ballot,      // value: 0 or 1
  LoadMatrix,  // value: address of the lane's 4 result words; operand: address of its row
  MultiplyAdd, // value: address of a Product
};

// What a barrier of a whole block computes from the predicates of its threads.
enum class BlockVote : int { None, Count, Or, And };

// What one lane passes to multiplyAdd16x8x16.
struct Product {
  float *d;
  const unsigned *a;
  unsigned b0, b1;
};

// What one thread passes to GroupProducts::add, a product of a warpgroup (m64nNk16).
struct GroupProduct {
  float *d;                  // its columns / 2 elements of the accumulator
  const unsigned *registers; // 4 words of the left factor; null: that is in shared memory, at `a`
  unsigned a, b;             // shared addresses of the factors
  int columns;
  bool turnedA, turnedB;
  bool fresh; // d = a b instead of d += a b
  // Of the factors. Two 8-bit floats are in the place of one bf16: m64nNk32.
  enum Format { BF16, E4M3, E5M2 } format = BF16;
};

// The place of a barrier or collective in the source. All threads must reach one and the same
// place.
struct Place {
  const char *file;
  int line;
};

struct Machine {
  Index thread, block, blockSize, gridSize; // threadIdx, blockIdx, blockDim, gridDim
  unsigned char *shared;
  unsigned sharedBase; // the shared address of shared[0]: a multiple of 128, no other is promised

  // Execute one load or store instruction of 1, 2, 4, 8 or 16 bytes at an address inside an
  // argument.
  void (*load)(const void *from, void *to, int bytes);
  void (*store)(void *to, const void *from, int bytes);
  // Returns the host address on which an atomic operation on global or shared memory works.
  void *(*atomic)(void *at, int bytes);

  void (*copyAsync)(void *shared, const void *from, bool valid);
  void (*copyAsyncCommit)();
  void (*copyAsyncWait)(int pending);

  int (*barrier)(BlockVote vote, int predicate, Place place);
  // Executes a collective of the warp and returns its result for this lane. `transposed` is only
  // for LoadMatrix.
  unsigned long long (*collective)(Collective kind, unsigned mask, unsigned long long value,
                                   unsigned long long operand, bool transposed, Place place);
  // Waits at the barrier `id` of the block until `threads` threads have come.
  void (*namedBarrier)(int id, int threads, Place place);

  // Products of warpgroups; Warpgroups.h says what each checks.
  void (*storeForProducts)(unsigned address, const void *from, int bytes);
  void (*seenByProducts)();
  void (*groupBegin)();
  void (*groupAdd)(const GroupProduct *product, Place place);
  void (*groupCommit)();
  void (*groupWait)(int pending, Place place);
  void (*trap)();
};

} // namespace lmc::simt
