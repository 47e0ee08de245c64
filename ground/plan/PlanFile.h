// Opens a plan file: reads the file and verifies the plan before anything else uses it.
#pragma once

#include "ground/support/Result.h"

#include "plan_generated.h"

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lmc {

// The version of the plan format. plan.fbs says when to raise it.
inline constexpr uint32_t kSchemaVersion = 7;

// A verified plan in memory, which stays the same even if the file changes.
class PlanFile {
public:
  // Reads the plan file `path`. Verifies its checksum, its structure (by FlatBuffers' verifier),
  // its schema version, and its meaning (verifyPlan()).
  static Result<std::unique_ptr<PlanFile>> open(const std::string &path);

  // Copies and verifies the plan in the `bytes` bytes at `data`. Errors use `name` as its path.
  static Result<std::unique_ptr<PlanFile>> fromBytes(const void *data, size_t bytes,
                                                     const std::string &name);

  PlanFile(const PlanFile &) = delete;
  PlanFile &operator=(const PlanFile &) = delete;

  const plan::Plan &operator*() const { return *root; }
  const plan::Plan *operator->() const { return root; }
  const std::string &path() const { return name; }
  // Returns the SHA-256 hash of the file as 64 hexadecimal digits.
  const std::string &hash() const { return sha; }
  // The phases of the run, in order; empty if it has none.
  struct Phase {
    std::string name;
    uint64_t firstStep = 0; // steps before the phase
    uint64_t steps = 0;
  };
  const std::vector<Phase> &phases() const { return trainingPhases; }
  // Returns the plan of phase `index`. For a run without phases, index 0 is this plan itself.
  const PlanFile &phasePlan(size_t index) const;

  std::span<const std::byte> contents() const { return bytes; }

  // Returns the index of the variable or function with this name; -1 if there is none.
  int findVariable(std::string_view variable) const;
  int findFunction(std::string_view function) const;

private:
  PlanFile() = default;
  Result<void> verify();
  Result<void> openPhases();

  std::string name, sha;
  std::vector<Phase> trainingPhases;
  std::vector<std::unique_ptr<PlanFile>> laterPhases; // without the first
  std::vector<std::byte> bytes;
  const plan::Plan *root = nullptr;
};

// Verifies every index, range, shape, enum and name of a plan. FlatBuffers' verifier must have
// accepted its structure. After success, commands access only bytes of their operands' slices, if
// the machine code of kernels is right.
Result<void> verifyPlan(const plan::Plan &plan);

size_t byteWidth(plan::DType dtype);

// Returns the number of ranks along an axis of the plan's mesh.
uint64_t ranksAlong(const plan::Plan &plan, plan::Axis axis);

// Returns the name of an axis, for people: "shard", "expert_shard".
std::string nameOf(plan::Axis axis);

} // namespace lmc
