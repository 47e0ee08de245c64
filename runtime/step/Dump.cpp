#include "runtime/step/Dump.h"

#include "ground/plan/Names.h"
#include "runtime/checkpoint/SafeTensors.h"
#include "runtime/folder/DeviceTensors.h"

#include <fmt/format.h>

#include <cstring>

namespace lmc {

Result<void> dumpGradients(const std::string &path, const PlanFile &plan, Device &device,
                           World &world) {
  DeviceTensors gradients = tensorsOfKind(plan, device, world, plan::VariableKind::Gradient);
  return writeSafeTensorsTogether(world.all(), path, gradients.tensors, gradients.written,
                                  gradients.fetch, {});
}

Result<void> dumpLogits(const std::string &path, Session &session, const DataSource &data) {
  const PlanFile &plan = *session.plan;
  int variable = plan.findVariable(names::kDebugLogits);
  if (variable < 0 || !session.functions->has(names::kLogits))
    return userError("{}: compiled without the function 'logits', which --dump-logits needs",
                     plan.path());
  auto index = plan->variables()->Get(static_cast<flatbuffers::uoffset_t>(variable))->slice();
  const plan::Slice &slice = *plan->slices()->Get(index);
  uint64_t rows = plan->batch()->micro_batch_size(), length = plan->batch()->sequence_length();
  uint64_t vocabulary = plan->model()->vocab_size();
  if (slice.bytes() != rows * length * vocabulary * byteWidth(slice.dtype()))
    return userError("{}: variable 'debug.logits' is not [mbs * seq, vocab]", plan.path());

  std::vector<int32_t> tokens(rows * length), targets(rows * length), starts(rows * length);
  LMC_TRY(data.fill(0, rows, tokens.data(), targets.data(), starts.data()));
  LMC_TRY(session.inputs->upload(tokens.data(), targets.data(), starts.data()));
  LMC_TRY(session.functions->run(names::kLogits));

  if (session.world.rank() != 0)
    return {};
  uint64_t tokenBytes = tokens.size() * sizeof(int32_t);
  std::vector<TensorView> tensors = {
      {"tokens", plan::DType::I32, {rows, length}, nullptr, tokenBytes},
      {"logits", slice.dtype(), {rows, length, vocabulary}, nullptr, slice.bytes()}};
  return writeSafeTensors(path, tensors,
                          [&](size_t tensor, void *out) -> Result<void> {
                            if (tensor == 1)
                              return session.device->copyOut(static_cast<int>(index), out,
                                                             slice.bytes());
                            std::memcpy(out, tokens.data(), tokenBytes);
                            return {};
                          },
                          {});
}

} // namespace lmc
