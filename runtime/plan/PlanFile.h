// Opens a plan: maps the file and verifies it before anything else reads it.
#pragma once

#include "runtime/support/Result.h"

#include "plan_generated.h"

#include <memory>
#include <string>

namespace lmc {

// Must be raised whenever an older runtime could misread a newer plan, or a newer runtime an older
// plan.
inline constexpr uint32_t kSchemaVersion = 3;

// A verified plan, mapped read-only into memory. Immutable.
class PlanFile {
public:
  // Maps `path` and verifies it: with FlatBuffers' structural verifier, then the schema version,
  // then the meaning of every index, range, shape and enum of every table (slices lie inside their
  // arenas, the operands of commands have the sizes that the command accesses, kernels exist in
  // modules, parameters are named once). A damaged or hostile file gives an Error; no read goes
  // past its end.
  static Result<std::unique_ptr<PlanFile>> open(const std::string &path);

  // Verifies and copies a plan in memory.
  static Result<std::unique_ptr<PlanFile>> fromBytes(const void *data, size_t bytes,
                                                     const std::string &name);

  ~PlanFile();
  PlanFile(const PlanFile &) = delete;
  PlanFile &operator=(const PlanFile &) = delete;

  const plan::Plan &operator*() const { return *root; }
  const plan::Plan *operator->() const { return root; }
  const std::string &path() const { return name; }

  // Returns the index of the variable or function with that name; -1 if there is none.
  int findVariable(std::string_view variable) const;
  int findFunction(std::string_view function) const;

private:
  PlanFile() = default;
  std::string name;
  void *mapping = nullptr;
  size_t mappedBytes = 0;
  bool owned = false; // malloc'ed rather than mapped
  const plan::Plan *root = nullptr;
};

// Bytes of one element.
size_t byteWidth(plan::DType dtype);

} // namespace lmc
