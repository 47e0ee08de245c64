// Matrix products by oneDNN's primitive or its sgemm, which divide the work in different ways.
#include "runtime/device/cpu/gemm/Implementations.h"

#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.hpp>

#include <unordered_map>

namespace lmc::cpu {
namespace {

using dnnl::memory;

memory::data_type dnnlType(Storage storage) {
  return storage == Storage::BF16 ? memory::data_type::bf16 : memory::data_type::f32;
}

// Accumulation (d += a b) is oneDNN's post-op "sum".
class OneDnnGemm final : public Gemm {
public:
  OneDnnGemm(const dnnl::engine &engine, const GemmShape &shape) : stream(engine) {
    auto matrix = [](int64_t rows, int64_t columns, bool transposed, Storage storage) {
      return memory::desc({rows, columns}, dnnlType(storage),
                          transposed ? memory::dims{1, rows} : memory::dims{columns, 1});
    };
    auto aDesc = matrix(shape.m, shape.k, shape.transposeA, shape.input);
    auto bDesc = matrix(shape.k, shape.n, shape.transposeB, shape.input);
    auto dDesc = matrix(shape.m, shape.n, false, shape.output);
    dnnl::primitive_attr attributes;
    if (shape.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
    }
    a = memory(aDesc, engine, nullptr);
    b = memory(bDesc, engine, nullptr);
    d = memory(dDesc, engine, nullptr);
    arguments = {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, d}};
    if (shape.hasBias) {
      auto biasDesc = matrix(1, shape.n, false, shape.bias);
      bias = memory(biasDesc, engine, nullptr);
      arguments.emplace(DNNL_ARG_BIAS, bias);
      prepare({dnnl::matmul::desc(aDesc, bDesc, biasDesc, dDesc), attributes, engine});
    } else {
      prepare({dnnl::matmul::desc(aDesc, bDesc, dDesc), attributes, engine});
    }
  }

  void run(const void *aData, const void *bData, void *dData, const void *biasData) override {
    a.set_data_handle(const_cast<void *>(aData));
    b.set_data_handle(const_cast<void *>(bData));
    d.set_data_handle(dData);
    if (bias)
      bias.set_data_handle(const_cast<void *>(biasData));
    product.execute(stream, arguments);
    stream.wait();
  }

  std::string implementation() const override { return "oneDNN " + kind; }

private:
  void prepare(const dnnl::matmul::primitive_desc &description) {
    kind = description.impl_info_str();
    product = dnnl::matmul(description);
  }

  dnnl::stream stream;
  dnnl::matmul product;
  memory a, b, d, bias;
  std::unordered_map<int, memory> arguments;
  std::string kind;
};

} // namespace

bool oneDnnHas(const GemmShape &shape) {
  if (shape.input != Storage::BF16)
    return shape.input == Storage::F32;
  switch (dnnl::get_effective_cpu_isa()) {
  case dnnl::cpu_isa::avx512_core_bf16:
  case dnnl::cpu_isa::avx512_core_amx:
    return true;
  default:
    return false;
  }
}

std::string oneDnnVersion() {
  const dnnl_version_t &version = *dnnl_version();
  return fmt::format("{}.{}.{} isa {:#x}", version.major, version.minor, version.patch,
                     unsigned(dnnl::get_effective_cpu_isa()));
}

Result<std::unique_ptr<Gemm>> makeOneDnnGemm(const GemmShape &shape) {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  try {
    return std::unique_ptr<Gemm>(std::make_unique<OneDnnGemm>(engine, shape));
  } catch (const dnnl::error &failure) {
    return machineError("oneDNN cannot multiply [{}, {}] by [{}, {}]: {}", shape.m, shape.k,
                        shape.k, shape.n, failure.what());
  }
}

void oneDnnSgemm(const GemmShape &shape, int64_t leadingA, int64_t leadingB, const void *a,
                 const void *b, void *d, int64_t leadingD) {
  const dnnl_status_t status = dnnl_sgemm(
      shape.transposeA ? 'T' : 'N', shape.transposeB ? 'T' : 'N', shape.m, shape.n, shape.k, 1.0f,
      static_cast<const float *>(a), leadingA, static_cast<const float *>(b), leadingB,
      shape.accumulate ? 1.0f : 0.0f, static_cast<float *>(d), leadingD);
  if (status != dnnl_success)
    throw dnnl::error(status, "dnnl_sgemm failed");
}

} // namespace lmc::cpu
