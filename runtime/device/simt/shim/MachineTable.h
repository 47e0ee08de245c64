// The functions of the executor (runtime/device/simt/Executor.cpp) that a kernel compiled for the
// host calls. The kernel's object has one pointer to such a table, `lmcMachine`, which the executor
// sets.
#pragma once

namespace lmc::simt {

struct Index {
  unsigned x, y, z;
};

// Operations of a whole warp. Each lane passes `value` and, where noted, `operand`.
enum class Collective : int {
  SyncWarp,
  Shuffle,     // operand: the lane to read from; from 32 on: itself
  Ballot,      // value: 0 or 1
  LoadMatrix,  // value: where the lane's four words go; operand: address of its row
  MultiplyAdd, // value: a Product
};

// Operations of a whole block.
enum class BlockVote : int { None, Count, Or, And };

// The operands of a lane in multiplyAdd16x8x16.
struct Product {
  float *d;
  const unsigned *a;
  unsigned b0, b1;
};

// The place of a barrier or collective in the source: all threads must reach the same one.
struct Place {
  const char *file;
  int line;
};

struct Machine {
  Index thread, block, blockSize, gridSize; // of the running thread
  unsigned char *shared;

  // One load or store instruction of 1, 2, 4, 8 or 16 bytes, at an address of an argument.
  void (*load)(const void *from, void *to, int bytes);
  void (*store)(void *to, const void *from, int bytes);
  // Returns the memory of an atomic operation: global or shared.
  void *(*atomic)(void *at, int bytes);

  void (*copyAsync)(void *shared, const void *from, bool valid);
  void (*copyAsyncCommit)();
  void (*copyAsyncWait)(int pending);

  int (*barrier)(BlockVote vote, int predicate, Place place);
  // `transposed` applies to LoadMatrix.
  unsigned long long (*collective)(Collective kind, unsigned mask, unsigned long long value,
                                   unsigned long long operand, bool transposed, Place place);
  void (*trap)();
};

} // namespace lmc::simt
