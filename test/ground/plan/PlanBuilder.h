// Builds small valid plans for tests, through FlatBuffers' object API.
#pragma once

#include "ground/plan/PlanFile.h"
#include "ground/plan/PlanTrailer.h"

#include <string>
#include <vector>

namespace lmc::test {

class PlanBuilder {
public:
  PlanBuilder() {
    plan.schema_version = kSchemaVersion;
    plan.compiler_version = "test";
    plan.target = "cpu:test";
    plan.fingerprint = "0";
    plan.model = std::make_unique<plan::ModelInfoT>();
    plan.model->architecture = "llama";
    plan.batch = std::make_unique<plan::BatchInfoT>();
    plan.batch->sequence_length = 8;
    plan.batch->micro_batch_size = 2;
    plan.batch->gradient_accumulation_steps = 3;
    plan.batch->ranks = 1;
    plan.batch->global_batch_size = 6;
    for (const char *name : {"state", "workspace"}) {
      auto arena = std::make_unique<plan::ArenaT>();
      arena->name = name;
      plan.arenas.push_back(std::move(arena));
    }
    auto function = std::make_unique<plan::FunctionT>();
    function->name = "micro_first";
    plan.functions.push_back(std::move(function));
  }

  // A slice at the next free place of the arena, which grows.
  uint32_t slice(plan::DType dtype, std::vector<uint64_t> shape, uint32_t arena = 0) {
    auto slice = std::make_unique<plan::SliceT>();
    slice->dtype = dtype;
    slice->bytes = byteWidth(dtype);
    for (uint64_t extent : shape)
      slice->bytes *= extent;
    slice->shape = std::move(shape);
    slice->arena = arena;
    slice->offset = plan.arenas[arena]->bytes;
    plan.arenas[arena]->bytes += (slice->bytes + 63) / 64 * 64;
    plan.slices.push_back(std::move(slice));
    return uint32_t(plan.slices.size() - 1);
  }

  // The columns `first` to `first` + `count` - 1 of a slice of shape [rows, columns].
  uint32_t columns(uint32_t of, uint64_t first, uint64_t count) {
    auto part = std::make_unique<plan::SliceT>(*plan.slices[of]);
    const uint64_t width = byteWidth(part->dtype);
    part->rows = part->shape[0];
    part->pitch = part->shape[1] * width;
    part->shape[1] = count;
    part->bytes = part->rows * count * width;
    part->offset += first * width;
    plan.slices.push_back(std::move(part));
    return uint32_t(plan.slices.size() - 1);
  }

  // A product of new f32 slices: d [m, n] = a [m, k] b [k, n].
  plan::GemmT product(uint64_t m, uint64_t n, uint64_t k) {
    plan::GemmT gemm;
    gemm.a = slice(plan::DType::F32, {m, k});
    gemm.b = slice(plan::DType::F32, {k, n});
    gemm.d = slice(plan::DType::F32, {m, n});
    gemm.m = m;
    gemm.n = n;
    gemm.k = k;
    return gemm;
  }

  plan::VariableT &variable(const std::string &name, plan::VariableKind kind, uint32_t slice) {
    auto variable = std::make_unique<plan::VariableT>();
    variable->name = name;
    variable->kind = kind;
    variable->slice = slice;
    plan.variables.push_back(std::move(variable));
    return *plan.variables.back();
  }

  plan::SettingT &setting(const std::string &key, plan::SettingType type,
                          const std::string &value) {
    auto setting = std::make_unique<plan::SettingT>();
    setting->key = key;
    setting->type = type;
    setting->value = value;
    plan.settings.push_back(std::move(setting));
    return *plan.settings.back();
  }

  // Adds a command to the first function.
  template <typename Body> void command(Body body) {
    auto command = std::make_unique<plan::CommandT>();
    command->body.Set(std::move(body));
    plan.functions[0]->commands.push_back(std::move(command));
  }

  std::string bytes() const {
    flatbuffers::FlatBufferBuilder builder;
    builder.Finish(plan::Plan::Pack(builder, &plan), plan::PlanIdentifier());
    std::string result(reinterpret_cast<const char *>(builder.GetBufferPointer()),
                       builder.GetSize());
    appendPlanTrailer(result);
    return result;
  }

  Result<std::unique_ptr<PlanFile>> open() const {
    std::string data = bytes();
    return PlanFile::fromBytes(data.data(), data.size(), "test.plan");
  }

  plan::PlanT plan;
};

} // namespace lmc::test
