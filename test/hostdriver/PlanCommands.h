// Finds the launches, products and copies of a program in the plan that the program runs.
//
// The stand-in gets pointers. It learns which allocation is which arena of the plan from the first
// command that fits: an arena's allocation is at least as long as the arena, and all operands lie
// where the plan says. A command that the plan does not have is refused.
#pragma once

#include "ground/plan/PlanFile.h"
#include "test/hostdriver/Memory.h"
#include "test/simt/Arguments.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lmc::hostdriver {

// A matrix of a product, as strides in bytes: element (i, j) lies at `address` + i `row` +
// j `column`.
struct Matrix {
  uint64_t address = 0;
  plan::DType dtype = plan::DType::F32;
  uint64_t rows = 0, columns = 0, row = 0, column = 0;
  // The number of such matrices, and the bytes from one to the next.
  uint64_t batch = 1, stride = 0;

  Matrix transposed() const { return {address, dtype, columns, rows, column, row, batch, stride}; }
  // Returns matrix `number` of the batch.
  Matrix at(uint64_t number) const {
    return {address + number * stride, dtype, rows, columns, row, column};
  }
};

// d = scaleA scaleB a b (+ d) (+ bias) (+ residual), where b's columns, d's columns and the bias
// have equal extents.
struct PlainProduct {
  Matrix a, b, d;
  uint64_t bias = 0; // address of the vector; 0: none
  plan::DType biasType = plan::DType::F32;
  uint64_t scaleA = 0, scaleB = 0; // addresses of scales in f32; 0: 1
  plan::Scaling scaling = plan::Scaling::Tensor;
  bool accumulate = false;
  Matrix residual; // added to the product; its address is 0 if there is none
  uint64_t workspace = 0, workspaceBytes = 0;
  bool isWrong = false; // the last row of d gets wrong sums
  bool mixesRows = false; // the second half of d's rows gets the sums of the first half
};

struct LaunchMatch {
  std::string name;
  std::vector<simt::Access> access; // per argument
  std::vector<Access> bytes;        // per argument
  // A kernel that computes initial values: its variable; null for all others.
  const plan::Variable *variable = nullptr;
  std::vector<uint64_t> elementBytes; // per argument; only with a variable
};

class PlanCommands {
public:
  // Returns the plan, which is found and read at the first use. Fails with
  // CUDA_ERROR_FILE_NOT_FOUND.
  const PlanFile &file();

  // Returns the number of the module whose code starts at `image`; -1: the plan has none. If the
  // plan has phases, those of the present one are looked at first, and the one with the module
  // becomes the present one.
  int findModule(const void *image);
  // Returns the number of the kernel `entry` of a module; -1: there is none.
  int findKernel(int module, const std::string &entry);
  // Returns how many arguments the plan's launches of a kernel have.
  size_t argumentsOf(uint32_t kernel);

  // Finds the launch of `kernel` with these pointers. Fails if the plan has none.
  LaunchMatch findLaunch(uint32_t kernel, const std::vector<uint64_t> &pointers);
  // Checks the record that a kernel for initial values reads, and returns how many elements the
  // kernel computes. Fails if the record is not for the variable, or not for the element at `out`.
  uint64_t checkRecord(const plan::Variable &variable, const void *record, uint64_t out);

  // Finds the product and returns its name. Fails if the plan has none. A product of which no
  // matrix lies in an arena may be one of a choice by timing: only its shape is looked up.
  std::string findProduct(const PlainProduct &product);
  // Returns true if no matrix of the product lies in an arena.
  bool isScratch(const PlainProduct &product);
  // Finds the copy and returns its name. Fails if the copy touches an arena and the plan has no
  // such copy.
  std::string findCopy(const Access &from, const Access &to);

  // Finds the collective of these addresses and bytes, and returns its name. Fails if the plan has
  // none.
  std::string findCollective(plan::CollectiveKind kind, const Access &x, const Access &d);

  // Forgets the arena of an allocation that is freed.
  void forget(uint64_t allocation);
  // Returns "byte 128 of arena 'state'", or the address.
  std::string place(uint64_t address);

private:
  using Operands = std::vector<std::pair<uint32_t, uint64_t>>; // slices and the pointers to them

  struct Candidate {
    const plan::Launch *launch;
    const plan::Command *command;
    const plan::Function *function;
  };

  void read();
  // Forgets everything of the present phase.
  void enterPhase(size_t index);
  int findModuleOfPhase(const void *image);
  // Returns true if each pointer is the address of its slice, and then remembers which allocation
  // is which arena.
  bool fits(const Operands &operands);
  bool isInArena(uint64_t address);
  Access bytesOf(uint32_t slice, uint64_t address, bool write);
  const plan::Slice &slice(uint32_t index) { return *(*opened)->slices()->Get(index); }

  std::unique_ptr<PlanFile> whole;
  const PlanFile *opened = nullptr; // the plan of the present phase
  size_t phase = 0;
  std::vector<uint64_t> arenas;                            // the address of each; 0: not known yet
  std::vector<std::vector<Candidate>> launches;            // per kernel
  std::vector<std::vector<const plan::Variable *>> values; // per kernel
  std::vector<Candidate> gemms, copies, collectives;       // without a launch
};

} // namespace lmc::hostdriver
