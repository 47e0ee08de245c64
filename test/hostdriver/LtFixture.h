// The product of the fixture's plan, through cuBLASLt: d += a b^T in rows is d^T += b a^T in
// columns.
#pragma once

#include "test/hostdriver/Fixture.h"

namespace lmc::hostdriver {

class LtDriver : public HostDriver {
protected:
  void SetUp() override {
    HostDriver::SetUp();
    open();
  }

  // Describes the product for matrices of type `of`.
  void open(cudaDataType_t of = CUDA_R_32F) {
    type = of;
    EXPECT_EQ(cublasLtCreate(&handle), CUBLAS_STATUS_SUCCESS);
    const bool wide = type == CUDA_R_64F;
    cublasLtMatmulDescCreate(&desc, wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                             wide ? CUDA_R_64F : CUDA_R_32F);
    const cublasOperation_t transposed = CUBLAS_OP_T;
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                   sizeof(transposed));
    cublasLtMatrixLayoutCreate(&aLayout, type, 6, 4, 6);
    cublasLtMatrixLayoutCreate(&bLayout, type, 6, 5, 6);
    cublasLtMatrixLayoutCreate(&dLayout, type, 5, 4, 5);
    cublasLtMatmulPreferenceCreate(&preference);
    const uint64_t bytes = 1024;
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                         &bytes, sizeof(bytes));
    prefer(64, CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  }

  void prefer(uint32_t alignment, uint32_t reductions) {
    for (auto which :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      cublasLtMatmulPreferenceSetAttribute(preference, which, &alignment, sizeof(alignment));
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                         &reductions, sizeof(reductions));
  }

  std::vector<cublasLtMatmulHeuristicResult_t> algorithms() {
    std::vector<cublasLtMatmulHeuristicResult_t> results(16);
    int found = 0;
    EXPECT_EQ(cublasLtMatmulAlgoGetHeuristic(handle, desc, bLayout, aLayout, dLayout, dLayout,
                                             preference, int(results.size()), results.data(),
                                             &found),
              CUBLAS_STATUS_SUCCESS);
    results.resize(size_t(found));
    return results;
  }

  // Returns an algorithm that splits k, and needs a workspace.
  cublasLtMatmulAlgo_t splitting() {
    for (const auto &result : algorithms())
      if (result.workspaceSize)
        return result.algo;
    ADD_FAILURE();
    return {};
  }

  struct Call {
    CUdeviceptr a, b, d, workspace;
    size_t workspaceBytes = 1024;
    float beta = 1;
    CUstream stream = nullptr;
  };
  Call usual() { return {at(a), at(b), at(d), at(workspace), 1024, 1, stream}; }

  cublasStatus_t multiply(const cublasLtMatmulAlgo_t &algo, Call call) {
    float scalars[] = {1, call.beta};
    double wideScalars[] = {1, call.beta};
    auto scalar = [&](int i) {
      return type == CUDA_R_64F ? static_cast<const void *>(&wideScalars[i]) : &scalars[i];
    };
    auto *product = reinterpret_cast<void *>(call.d);
    const cublasStatus_t status = cublasLtMatmul(
        handle, desc, scalar(0), reinterpret_cast<void *>(call.b), bLayout,
        reinterpret_cast<void *>(call.a), aLayout, scalar(1), product, dLayout, product, dLayout,
        &algo, reinterpret_cast<void *>(call.workspace), call.workspaceBytes, call.stream);
    // Scalars of the host are read in the call, and not later.
    std::fill_n(scalars, 2, 99.0f);
    std::fill_n(wideScalars, 2, 99.0);
    return status;
  }

  // Writes terms of many sizes, so that the order of a sum shows.
  void writeOperands() {
    std::vector<float> values(24), more(30);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = std::ldexp(float(std::sin(double(i) + 1)), int(i % 6) * 3 - 9);
    for (size_t i = 0; i < more.size(); ++i)
      more[i] = float(std::cos(double(i) * 1.7));
    write(a, values);
    write(b, more);
    write(d, counted(20));
  }

  void close() {
    cublasLtMatmulPreferenceDestroy(preference);
    for (cublasLtMatrixLayout_t layout : {aLayout, bLayout, dLayout})
      cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(desc);
    cublasLtDestroy(handle);
  }

  cudaDataType_t type = CUDA_R_32F;
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t aLayout = nullptr, bLayout = nullptr, dLayout = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
};

} // namespace lmc::hostdriver
