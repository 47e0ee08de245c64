// What a kernel that was compiled for the host asks of the executor (runtime/device/simt/Executor.cpp).
// The kernel's object has one pointer to such a table, `lmcMachine`, which the executor sets.
#pragma once

namespace lmc::simt {

struct Index {
  unsigned x, y, z;
};

// What the threads of a warp do together. A lane gives `value`, and `operand` where noted.
enum class Collective : int {
  SyncWarp,
  Shuffle,     // operand: the lane to read from; 32 or more: its own
  Ballot,      // value: 0 or 1
  LoadMatrix,  // value: where the lane's four words go; operand: the address of its row
  MultiplyAdd, // value: a Product
};

// What the threads of a block do together.
enum class BlockVote : int { None, Count, Or, And };

// The operands of a lane in multiplyAdd16x8x16.
struct Product {
  float *d;
  const unsigned *a;
  unsigned b0, b1;
};

// Where in the source a barrier or collective stands: all threads must come to the same.
struct Place {
  const char *file;
  int line;
};

struct Machine {
  Index thread, block, blockSize, gridSize; // of the thread that runs now
  unsigned char *shared;

  // One instruction each, of 1, 2, 4, 8 or 16 bytes, at an address of an argument.
  void (*load)(const void *from, void *to, int bytes);
  void (*store)(void *to, const void *from, int bytes);
  // Where an atomic operation may read and write: global or shared memory.
  void *(*atomic)(void *at, int bytes);

  void (*copyAsync)(void *shared, const void *from, bool valid);
  void (*copyAsyncCommit)();
  void (*copyAsyncWait)(int pending);

  int (*barrier)(BlockVote vote, int predicate, Place place);
  // `transposed` is for LoadMatrix.
  unsigned long long (*collective)(Collective kind, unsigned mask, unsigned long long value,
                                   unsigned long long operand, bool transposed, Place place);
  void (*trap)();
};

} // namespace lmc::simt
