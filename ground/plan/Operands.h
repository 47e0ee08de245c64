// Lists the slices that each command of a plan uses, and whether the command reads or writes them.
// An operand's `slice` is an index into Plan.slices, which is not checked here.
#pragma once

#include "ground/plan/CommandList.inc"
#include "plan_generated.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <iterator>
#include <string>
#include <vector>

namespace lmc::plan {

enum class Role : uint8_t {
  Read,
  Write,      // the command overwrites the slice and does not read it
  Accumulate, // the command adds to the slice: it reads the old values and writes the sums
  Scratch,    // the contents of the slice are undefined before and after the command
};

struct Operand {
  const char *name; // name of the field in the command's body: "q"
  int64_t slice;
  Role role = Role::Read;
  bool mayBeSpaced = false; // the slice may have a pitch: gaps between its rows

  bool isRead() const { return role == Role::Read || role == Role::Accumulate; }
  bool isResult() const { return role == Role::Write || role == Role::Accumulate; }
};

// The operands of a command, without its absent optional operands (slice -1).
class Operands : public std::vector<Operand> {
public:
  Operands() = default;
  Operands(std::initializer_list<Operand> all) {
    std::copy_if(all.begin(), all.end(), std::back_inserter(*this),
                 [](const Operand &operand) { return operand.slice != -1; });
  }
};

inline Operands operandsOf(const Launch &op) {
  Operands operands;
  for (uint32_t slice : *op.args())
    operands.push_back(
        {"argument", slice, operands.size() < op.inputs() ? Role::Read : Role::Write, true});
  return operands;
}

// Returns true if the product is added to the contents of d.
inline bool accumulates(const Gemm &op) { return int64_t(op.c()) == int64_t(op.d()); }
// Returns the slice that is added to the product; -1 if there is none, or if that slice is `d`.
inline int64_t residualOf(const Gemm &op) { return accumulates(op) ? -1 : int64_t(op.c()); }

inline Operands operandsOf(const Gemm &op) {
  return {{"a", op.a()},
          {"b", op.b()},
          {"d", op.d(), accumulates(op) ? Role::Accumulate : Role::Write},
          {"bias", op.bias()},
          {"residual", residualOf(op)},
          {"scale_a", op.scale_a()},
          {"scale_b", op.scale_b()}};
}

inline Operands operandsOf(const LinearSwiglu &op) {
  const Gemm &product = *op.product();
  return {{"x", product.a()},
          {"weight", product.b()},
          {"gu", product.d(), op.both() ? Role::Write : Role::Scratch},
          {"a", op.a(), Role::Write}};
}

inline Operands operandsOf(const SwigluLinearGrad &op) {
  const Gemm &product = *op.product();
  return {{"dy", product.a()},
          {"weight", product.b()},
          {"dgu", op.dgu(), Role::Accumulate},
          {"a", product.d(), op.both() ? Role::Write : Role::Scratch}};
}

// Returns the command's matrix product (the command itself or a part of it), or null.
inline const Gemm *productOf(const Command &command) {
  if (const LinearSwiglu *op = command.body_as_LinearSwiglu())
    return op->product();
  if (const SwigluLinearGrad *op = command.body_as_SwigluLinearGrad())
    return op->product();
  return command.body_as_Gemm();
}

// Returns true if the command's kernels (Command.launches) are alternatives. A device then launches
// only one of them.
inline bool hasTwoWays(const Command &command) {
  return command.body_as_LinearSwiglu() || command.body_as_SwigluLinearGrad() ||
         (command.body_as_ExpertLinear() && command.launches() && command.launches()->size() > 1);
}

#include "ground/plan/Operands.inc"

inline Operands operandsOf(const Copy &op) {
  return {{"x", op.x(), Role::Read, true}, {"d", op.d(), Role::Write, true}};
}

inline Operands operandsOf(const Collective &op) {
  if (op.kind() == CollectiveKind::AllReduce)
    return {{"d", op.d(), Role::Accumulate}};
  return {{"x", op.x()}, {"d", op.d(), Role::Write}};
}

// A wait itself accesses no bytes. Only commands after it may use the bytes of its collective.
inline Operands operandsOf(const Wait &) { return {}; }

// Calls `visit` with the body of `command`, in the body's type (such as `const Gemm &`). Returns
// the result. Aborts the program if the type is unknown: no verified plan has such a command.
template <typename Visit> auto visitBody(const Command &command, Visit &&visit) {
  switch (command.body_type()) {
#define LMC_VISIT(Name)                                                                            \
  case CommandBody::Name:                                                                          \
    return visit(*command.body_as_##Name());
    LMC_COMMANDS(LMC_VISIT)
#undef LMC_VISIT
  case CommandBody::NONE:
    break;
  }
  std::abort();
}

// Returns the operands of the command's body, followed by its workspace slice if it has one.
Operands operandsOf(const Command &command);

// Returns the kernel launches of a command, in order: the command itself if it is a Launch, else
// the kernels that compute the command on a CUDA device.
std::vector<const Launch *> launchesOf(const Command &command);

// Returns the name of a command for error messages: "command 12 of micro, gemm
// layers.0/mlp.down_proj".
std::string placeOf(const Function &function, uint32_t command);

// Returns the kind of a command for reports: "gemm", "attention_grad", "all_gather".
std::string commandName(const Command &command);

} // namespace lmc::plan
