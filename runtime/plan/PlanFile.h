// Opens a plan: maps the file and verifies it before anything else reads it.
#pragma once

#include "runtime/support/Result.h"

#include "plan_generated.h"

#include <memory>
#include <string>

namespace lmc {

// The version of the plan format (plan.fbs). It must be raised whenever an older runtime could
// misread a newer plan, or a newer runtime an older plan.
inline constexpr uint32_t kSchemaVersion = 3;

// A verified plan, mapped read-only into memory. It never changes.
class PlanFile {
public:
  // Maps the file `path` and verifies the plan in it: the checksum, the structure (with
  // FlatBuffers' verifier), the schema version, and the meaning of every index, range, shape and
  // enum (slices lie inside their arenas, the operands of commands have the sizes that the command
  // accesses, kernels exist in modules, variables have different names). Returns an Error for a
  // damaged or hostile file, and never reads past the end of the file.
  static Result<std::unique_ptr<PlanFile>> open(const std::string &path);

  // Copies the `bytes` bytes at `data` and verifies the plan in them. Errors call the plan `name`.
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
  bool owned = false; // `mapping` was allocated with malloc, not mmap
  const plan::Plan *root = nullptr;
};

// Returns the number of bytes of one element of `dtype`.
size_t byteWidth(plan::DType dtype);

} // namespace lmc
