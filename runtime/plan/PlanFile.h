// Opening a plan: map the file, verify it, and only then trust it.
#pragma once

#include "runtime/support/Result.h"

#include "plan_generated.h"

#include <memory>
#include <string>

namespace lmc {

// Raised whenever an older runtime could misread a newer plan, or the reverse.
inline constexpr uint32_t kSchemaVersion = 3;

// A plan mapped read-only into memory, verified. Immutable.
class PlanFile {
public:
  // Maps `path` and verifies it: FlatBuffers' structural verifier, the schema
  // version, and then that every index, range, shape and enum of every table
  // makes sense (slices inside their arenas, commands' operands with the sizes
  // that the command will touch, kernels inside modules, parameters named
  // once). A damaged or hostile file gives an Error; nothing reads past its end.
  static Result<std::unique_ptr<PlanFile>> open(const std::string &path);

  // The same for a plan in memory (copied).
  static Result<std::unique_ptr<PlanFile>> fromBytes(const void *data, size_t bytes,
                                                     const std::string &name);

  ~PlanFile();
  PlanFile(const PlanFile &) = delete;
  PlanFile &operator=(const PlanFile &) = delete;

  const plan::Plan &operator*() const { return *root; }
  const plan::Plan *operator->() const { return root; }
  const std::string &path() const { return name; }

  // Index of the variable or function of that name; -1 when there is none.
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
