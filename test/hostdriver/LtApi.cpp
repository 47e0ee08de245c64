// The entry points of cuBLASLt. Streams, memory and the plan are those of the stand-in for libcuda,
// which this library links.
#pragma GCC visibility push(default)
#include <cublasLt.h>
#pragma GCC visibility pop

#include "test/hostdriver/Products.h"

#include <xxhash.h>

#include <cstring>

using namespace lmc::hostdriver;
using lmc::plan::DType;

namespace {

constexpr uint32_t kMarker = 0x4c744c6d;

// The bytes of a cublasLtMatmulAlgo_t.
struct OpaqueAlgorithm {
  uint32_t marker, number;
  uint32_t fault; // what is wrong with it: a Fault
  // In bytes: of a, b, c and d as the preference promised, and of the bias that the heuristic saw.
  uint32_t alignment[5];
  uint64_t shape;        // hash of the product that the heuristic was asked about
  uint64_t workspace;    // bytes
  uint64_t hash;         // of all before
  uint64_t hashed() const { return XXH3_64bits(this, offsetof(OpaqueAlgorithm, hash)); }
};
static_assert(sizeof(OpaqueAlgorithm) <= sizeof(cublasLtMatmulAlgo_t));
static_assert(std::has_unique_object_representations_v<OpaqueAlgorithm>, "all bytes are hashed");

// What LMC_HOST_BAD_ALGORITHM asks for.
enum Fault : uint32_t { None, HasFailed, DoesNotRun, SumsWrong, RowsMixed };

Fault faultAsked() {
  const std::string &how = hostility().badAlgorithm;
  return how == "state"  ? HasFailed
         : how == "run"  ? DoesNotRun
         : how == "sum"  ? SumsWrong
         : how == "rows" ? RowsMixed
                         : None;
}

struct Handle {
  int unused = 0;
};

struct Operation {
  cublasComputeType_t compute;
  cudaDataType_t scale, biasType = cudaDataType_t(-1);
  cublasOperation_t transA = CUBLAS_OP_N, transB = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  uint64_t bias = 0, scaleA = 0, scaleB = 0;
  cublasLtMatmulMatrixScale_t modeA = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F,
                              modeB = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
};

struct Layout {
  cudaDataType_t type;
  uint64_t rows, columns;
  int64_t leading;
  cublasLtOrder_t order = CUBLASLT_ORDER_COL;
  int32_t batch = 1;
  int64_t stride = 0; // in elements
};

struct Preference {
  uint64_t workspace = 0;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  uint32_t alignment[4] = {256, 256, 256, 256};
};

uint64_t questions = 0; // to the heuristic
Registry<Handle> handles;
Registry<Operation> operations;
Registry<Layout> layouts;
Registry<Preference> preferences;

cublasStatus_t statusOf(CUresult result) {
  switch (result) {
  case CUDA_SUCCESS:
    return CUBLAS_STATUS_SUCCESS;
  case CUDA_ERROR_OUT_OF_MEMORY:
    return CUBLAS_STATUS_ALLOC_FAILED;
  case CUDA_ERROR_NOT_INITIALIZED:
  case CUDA_ERROR_INVALID_CONTEXT:
    return CUBLAS_STATUS_NOT_INITIALIZED;
  case CUDA_ERROR_INVALID_VALUE:
  case CUDA_ERROR_INVALID_HANDLE:
  case kRuleBroken:
    return CUBLAS_STATUS_INVALID_VALUE;
  case CUDA_ERROR_NOT_SUPPORTED:
    return CUBLAS_STATUS_NOT_SUPPORTED;
  default:
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
}

cublasStatus_t call(const char *name, Kind kind, const std::function<void()> &body) {
  return statusOf(driver().call(name, kind, body));
}

template <typename T, typename Opaque>
void create(Registry<T> &registry, const char *kind, Opaque **handle, T object) {
  *handle = reinterpret_cast<Opaque *>(registry.add(std::make_unique<T>(object)));
  ++driver().libraryObjects[kind];
}

template <typename T> T &find(Registry<T> &registry, const void *handle) {
  return registry.check(static_cast<T *>(const_cast<void *>(handle)));
}

template <typename T> void destroy(Registry<T> &registry, const char *kind, const void *handle) {
  registry.remove(&find(registry, handle));
  --driver().libraryObjects[kind];
}

template <typename T> void set(T &value, const void *from, size_t bytes) {
  if (bytes != sizeof(T) || !from)
    broken(CUDA_ERROR_INVALID_VALUE, "an attribute of {} bytes is set from {} bytes", sizeof(T),
           from ? bytes : 0);
  std::memcpy(&value, from, sizeof(T));
}

// Refuses any value of an attribute but the one that this stand-in models.
void requireOnly(int32_t modelled, const void *from, size_t bytes, const char *attribute) {
  int32_t value = 0;
  set(value, from, bytes);
  if (value != modelled)
    broken(CUDA_ERROR_NOT_SUPPORTED, "{} {} is not modelled", attribute, value);
}

DType dtypeOf(cudaDataType_t type) {
  switch (type) {
  case CUDA_R_16BF:
    return DType::BF16;
  case CUDA_R_32F:
    return DType::F32;
  case CUDA_R_64F:
    return DType::F64;
  case CUDA_R_8F_E4M3:
    return DType::F8E4M3;
  case CUDA_R_8F_E5M2:
    return DType::F8E5M2;
  default:
    broken(CUDA_ERROR_NOT_SUPPORTED, "data type {} is not modelled", int(type));
  }
}

// Returns the matrix of a layout, transposed if `operation` says so.
Matrix matrixOf(const Layout &layout, const void *data, cublasOperation_t operation) {
  const DType dtype = dtypeOf(layout.type);
  const uint64_t width = lmc::byteWidth(dtype);
  const bool byRow = layout.order == CUBLASLT_ORDER_ROW;
  if (!byRow && layout.order != CUBLASLT_ORDER_COL)
    broken(CUDA_ERROR_NOT_SUPPORTED, "order {} of a layout is not modelled", int(layout.order));
  if (layout.leading < int64_t(byRow ? layout.columns : layout.rows))
    broken(CUDA_ERROR_INVALID_VALUE, "a matrix of {} x {} elements has leading dimension {}",
           layout.rows, layout.columns, layout.leading);
  const uint64_t leading = uint64_t(layout.leading) * width;
  Matrix matrix{reinterpret_cast<uint64_t>(data),
                dtype,
                layout.rows,
                layout.columns,
                byRow ? leading : width,
                byRow ? width : leading,
                uint64_t(layout.batch),
                uint64_t(layout.stride) * width};
  return operation == CUBLAS_OP_N ? matrix : matrix.transposed();
}

// Checks what products of 8-bit floats need on GPUs of compute capability 8.9, 9.0 and 12.x. Other
// products have no scales.
void checkEightBits(const Operation &operation, const Matrix &a, const Layout &aLayout,
                    const Matrix &b, const Layout &bLayout, const Matrix &d) {
  auto isShort = [](DType dtype) { return lmc::byteWidth(dtype) == 1; };
  if (!isShort(a.dtype) && !isShort(b.dtype)) {
    if (operation.scaleA || operation.scaleB)
      broken(CUDA_ERROR_INVALID_VALUE, "a product of {} has scales", EnumNameDType(a.dtype));
    return;
  }
  if (!isShort(a.dtype) || !isShort(b.dtype) || (a.dtype == DType::F8E5M2 && b.dtype == a.dtype))
    broken(CUDA_ERROR_NOT_SUPPORTED, "a product of {} by {}", EnumNameDType(a.dtype),
           EnumNameDType(b.dtype));
  if (d.dtype != DType::BF16 && d.dtype != DType::F32)
    broken(CUDA_ERROR_NOT_SUPPORTED, "a product of 8-bit floats has a result of {}",
           EnumNameDType(d.dtype));
  if (operation.transA != CUBLAS_OP_T || operation.transB != CUBLAS_OP_N)
    broken(CUDA_ERROR_NOT_SUPPORTED,
           "a product of 8-bit floats is not of a transposed and a plain matrix");
  for (const Layout *layout : {&aLayout, &bLayout})
    if (layout->rows % 16 || layout->columns % 16 || layout->leading % 16)
      broken(CUDA_ERROR_NOT_SUPPORTED,
             "{} x {} 8-bit floats with leading dimension {}: multiples of 16 are needed",
             layout->rows, layout->columns, layout->leading);
  const auto scalar = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F,
             rows = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F,
             tiles = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
  const bool areScalar = operation.modeA == scalar && operation.modeB == scalar;
  if (!areScalar &&
      (operation.modeB != rows || (operation.modeA != rows && operation.modeA != tiles)))
    broken(CUDA_ERROR_NOT_SUPPORTED, "scale modes {} and {} are not modelled", int(operation.modeA),
           int(operation.modeB));
  if (!areScalar && aLayout.rows % 128)
    broken(CUDA_ERROR_NOT_SUPPORTED, "sums of {} terms have no blocks of 128", aLayout.rows);
  for (uint64_t scale : {operation.scaleA, operation.scaleB})
    if (scale % (areScalar ? sizeof(float) : 16))
      broken(CUDA_ERROR_INVALID_VALUE, "a scale is at {:#x}", scale);
}

// Returns the product in row-major form. If d is stored by columns, that is the product of the
// transposed matrices.
PlainProduct productOf(const Operation &operation, const void *a, const Layout &aLayout,
                       const void *b, const Layout &bLayout, void *d, const Layout &dLayout) {
  PlainProduct product;
  product.a = matrixOf(aLayout, a, operation.transA);
  product.b = matrixOf(bLayout, b, operation.transB);
  product.d = matrixOf(dLayout, d, CUBLAS_OP_N);
  if (product.a.batch != product.b.batch || product.a.batch != product.d.batch)
    broken(CUDA_ERROR_INVALID_VALUE, "a product of batches of {} and {} into {} matrices",
           product.a.batch, product.b.batch, product.d.batch);
  if (product.a.columns != product.b.rows || product.a.rows != product.d.rows ||
      product.b.columns != product.d.columns)
    broken(CUDA_ERROR_INVALID_VALUE, "a product of {} x {} and {} x {} elements into {} x {}",
           product.a.rows, product.a.columns, product.b.rows, product.b.columns, product.d.rows,
           product.d.columns);
  checkEightBits(operation, product.a, aLayout, product.b, bLayout, product.d);
  product.scaleA = operation.scaleA;
  product.scaleB = operation.scaleB;
  product.scaling =
      operation.modeA == CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F   ? lmc::plan::Scaling::Tensor
      : operation.modeA == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F ? lmc::plan::Scaling::Rows
                                                                   : lmc::plan::Scaling::Tiles;
  const DType sums = product.d.dtype == DType::F64 ? DType::F64 : DType::F32;
  if (lmc::byteWidth(product.a.dtype) != lmc::byteWidth(product.b.dtype) ||
      dtypeOf(operation.scale) != sums ||
      operation.compute != (sums == DType::F64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F))
    broken(CUDA_ERROR_NOT_SUPPORTED, "the types of a product do not fit together");
  const bool byColumn = dLayout.order == CUBLASLT_ORDER_COL;
  if (operation.epilogue == CUBLASLT_EPILOGUE_BIAS) {
    if (!byColumn || !operation.bias)
      broken(CUDA_ERROR_NOT_SUPPORTED, "this bias is not modelled");
    const bool isScaled = lmc::byteWidth(product.a.dtype) == 1;
    const cudaDataType_t wanted = isScaled ? CUDA_R_16BF : dLayout.type;
    if (operation.biasType == cudaDataType_t(-1) ? isScaled : operation.biasType != wanted)
      broken(CUDA_ERROR_NOT_SUPPORTED, "a bias of another type than d's");
    product.bias = operation.bias;
    product.biasType = dtypeOf(wanted);
  } else if (operation.epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
    broken(CUDA_ERROR_NOT_SUPPORTED, "epilogue {} is not modelled", int(operation.epilogue));
  }
  if (!byColumn)
    return product;
  PlainProduct rows = product;
  rows.a = product.b.transposed();
  rows.b = product.a.transposed();
  rows.d = product.d.transposed();
  std::swap(rows.scaleA, rows.scaleB);
  return rows;
}

// Returns the bytes from the first element of a matrix to its last.
Access bytesOf(const void *data, const Layout &layout) {
  const uint64_t lines = layout.order == CUBLASLT_ORDER_COL ? layout.columns : layout.rows;
  return {reinterpret_cast<uint64_t>(data),
          lines * uint64_t(layout.leading) * lmc::byteWidth(dtypeOf(layout.type)), true};
}

// Returns the layout of c, which is d's if none is given. Fails unless it differs from d's in the
// leading dimension alone, whatever beta is.
const Layout &layoutOfC(cublasLtMatrixLayout_t cLayout, const Layout &d) {
  const Layout &c = cLayout ? find(layouts, cLayout) : d;
  if (c.type != d.type || c.rows != d.rows || c.columns != d.columns || c.batch != d.batch ||
      c.order != d.order)
    broken(CUDA_ERROR_INVALID_VALUE,
           "c of a product has {} matrices of {} x {} elements of type {} in order {}, and d {} of "
           "{} x {} of type {} in order {}",
           c.batch, c.rows, c.columns, int(c.type), int(c.order), d.batch, d.rows, d.columns,
           int(d.type), int(d.order));
  return c;
}

uint64_t hashOf(const PlainProduct &product) {
  std::string all;
  for (const Matrix *matrix : {&product.a, &product.b, &product.d})
    all += fmt::format("{} {} {} {} {} {} {};", int(matrix->dtype), matrix->rows, matrix->columns,
                       matrix->row, matrix->column, matrix->batch, matrix->stride);
  all += product.bias ? "bias" : "";
  all += fmt::format("scaling {}", int(product.scaling));
  all += product.scaleA ? "scale of a" : "";
  all += product.scaleB ? "scale of b" : "";
  return XXH3_64bits(all.data(), all.size());
}

uint64_t workspaceOf(const Algorithm &algorithm, const PlainProduct &product) {
  return product.d.batch * algorithm.workspace(product.d.rows, product.d.columns,
                                               product.d.dtype == DType::F64 ? 8 : 4);
}

// Returns the algorithm. Fails unless the heuristic returned it for this product.
OpaqueAlgorithm checked(const cublasLtMatmulAlgo_t *algo, const PlainProduct &product) {
  OpaqueAlgorithm algorithm;
  if (!algo)
    broken(kRuleBroken, "a product without an algorithm: the heuristic inside of cuBLASLt may "
                        "choose another one each time");
  std::memcpy(&algorithm, algo, sizeof(algorithm));
  if (algorithm.marker != kMarker || algorithm.hash != algorithm.hashed())
    broken(CUDA_ERROR_INVALID_VALUE, "these bytes are no algorithm that the heuristic returned");
  if (algorithm.shape != hashOf(product))
    broken(CUDA_ERROR_INVALID_VALUE,
           "the algorithm is for a product of another shape, type or layout");
  if (algorithm.fault == HasFailed)
    broken(kRuleBroken, "a proposal of the heuristic runs whose state is a failure");
  return algorithm;
}

} // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
  return call("cublasLtCreate", Kind::Allocate, [&] {
    driver().graphs.checkSafe();
    driver().memory.takeForLibrary();
    Handle *made = handles.add(std::make_unique<Handle>());
    *handle = reinterpret_cast<cublasLtHandle_t>(made);
    ++driver().libraryObjects["cublaslt_handles"];
  });
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return call("cublasLtDestroy", Kind::Release, [&] {
    driver().graphs.checkSafe();
    driver().streams.checkNoCollective("a handle of cuBLASLt is destroyed");
    destroy(handles, "cublaslt_handles", handle);
    driver().memory.giveBack();
  });
}

size_t cublasLtGetVersion() { return CUBLAS_VERSION; }

const char *cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
  case CUBLAS_STATUS_SUCCESS:
    return "CUBLAS_STATUS_SUCCESS";
  case CUBLAS_STATUS_NOT_INITIALIZED:
    return "CUBLAS_STATUS_NOT_INITIALIZED";
  case CUBLAS_STATUS_ALLOC_FAILED:
    return "CUBLAS_STATUS_ALLOC_FAILED";
  case CUBLAS_STATUS_INVALID_VALUE:
    return "CUBLAS_STATUS_INVALID_VALUE";
  case CUBLAS_STATUS_NOT_SUPPORTED:
    return "CUBLAS_STATUS_NOT_SUPPORTED";
  case CUBLAS_STATUS_EXECUTION_FAILED:
    return "CUBLAS_STATUS_EXECUTION_FAILED";
  default:
    return "CUBLAS_STATUS_INTERNAL_ERROR";
  }
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  return call("cublasLtMatmulDescCreate", Kind::Allocate, [&] {
    create(operations, "matmul_descs", desc, Operation{compute, scale});
  });
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  return call("cublasLtMatmulDescDestroy", Kind::Release,
              [&] { destroy(operations, "matmul_descs", desc); });
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t which,
                                              const void *value, size_t bytes) {
  return call("cublasLtMatmulDescSetAttribute", Kind::Call, [&] {
    Operation &operation = find(operations, desc);
    switch (which) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set(operation.transA, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return set(operation.transB, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return set(operation.epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return set(operation.bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return set(operation.biasType, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
      return set(operation.scaleA, value, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
      return set(operation.scaleB, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_MODE:
      return set(operation.modeA, value, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_MODE:
      return set(operation.modeB, value, bytes);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
      return requireOnly(CUBLASLT_POINTER_MODE_HOST, value, bytes, "pointer mode");
    default:
      broken(CUDA_ERROR_NOT_SUPPORTED, "attribute {} of a product is not modelled", int(which));
    }
  });
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t leading) {
  return call("cublasLtMatrixLayoutCreate", Kind::Allocate, [&] {
    create(layouts, "matrix_layouts", layout, Layout{type, rows, columns, leading});
  });
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return call("cublasLtMatrixLayoutDestroy", Kind::Release,
              [&] { destroy(layouts, "matrix_layouts", layout); });
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t handle,
                                                cublasLtMatrixLayoutAttribute_t which,
                                                const void *value, size_t bytes) {
  return call("cublasLtMatrixLayoutSetAttribute", Kind::Call, [&] {
    Layout &layout = find(layouts, handle);
    switch (which) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
      return set(layout.type, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return set(layout.order, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return set(layout.rows, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return set(layout.columns, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return set(layout.leading, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      set(layout.batch, value, bytes);
      if (layout.batch < 1)
        refuse(CUDA_ERROR_INVALID_VALUE);
      return;
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return set(layout.stride, value, bytes);
    default:
      broken(CUDA_ERROR_NOT_SUPPORTED, "attribute {} of a layout is not modelled", int(which));
    }
  });
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference) {
  return call("cublasLtMatmulPreferenceCreate", Kind::Allocate,
              [&] { create(preferences, "matmul_preferences", preference, Preference{}); });
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return call("cublasLtMatmulPreferenceDestroy", Kind::Release,
              [&] { destroy(preferences, "matmul_preferences", preference); });
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                    cublasLtMatmulPreferenceAttributes_t which,
                                                    const void *value, size_t bytes) {
  return call("cublasLtMatmulPreferenceSetAttribute", Kind::Call, [&] {
    Preference &preference = find(preferences, handle);
    switch (which) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return set(preference.workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return set(preference.reductions, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return set(preference.alignment[which - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value,
                 bytes);
    default:
      broken(CUDA_ERROR_NOT_SUPPORTED, "preference {} is not modelled", int(which));
    }
  });
}

cublasStatus_t
cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                               cublasLtMatrixLayout_t aLayout, cublasLtMatrixLayout_t bLayout,
                               cublasLtMatrixLayout_t cLayout, cublasLtMatrixLayout_t dLayout,
                               cublasLtMatmulPreference_t wanted, int most,
                               cublasLtMatmulHeuristicResult_t results[], int *found) {
  return call("cublasLtMatmulAlgoGetHeuristic", Kind::Call, [&] {
    find(handles, handle);
    const PlainProduct product =
        productOf(find(operations, desc), nullptr, find(layouts, aLayout), nullptr,
                  find(layouts, bLayout), nullptr, find(layouts, dLayout));
    layoutOfC(cLayout, find(layouts, dLayout));
    const Preference preference = wanted ? find(preferences, wanted) : Preference{};
    if (most <= 0)
      broken(CUDA_ERROR_INVALID_VALUE, "the heuristic is asked for {} algorithms", most);
    *found = 0;
    // The manual allows both: an error, or success with nothing.
    if (hostility().noAlgorithm && ++questions >= hostility().noAlgorithm) {
      if (hostility().seed % 2)
        refuse(CUDA_ERROR_NOT_SUPPORTED);
      return;
    }
    for (uint32_t i = 0; i < kAlgorithmCount && *found < most; ++i) {
      OpaqueAlgorithm algorithm{kMarker,
                                i,
                                *found ? None : faultAsked(),
                                {},
                                hashOf(product),
                                workspaceOf(kAlgorithms[i], product),
                                0};
      if (algorithm.workspace > preference.workspace ||
          (kAlgorithms[i].scheme & preference.reductions) != kAlgorithms[i].scheme)
        continue;
      std::memcpy(algorithm.alignment, preference.alignment, sizeof(preference.alignment));
      algorithm.alignment[4] =
          product.bias ? uint32_t(std::min<uint64_t>(product.bias & -product.bias, 1 << 30)) : 1;
      algorithm.hash = algorithm.hashed();
      cublasLtMatmulHeuristicResult_t &result = results[(*found)++];
      result = {};
      std::memcpy(&result.algo, &algorithm, sizeof(algorithm));
      result.workspaceSize = algorithm.workspace;
      result.state =
          algorithm.fault == HasFailed ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
      result.wavesCount = 1;
    }
  });
}

cublasStatus_t
cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                        cublasLtMatrixLayout_t aLayout, cublasLtMatrixLayout_t bLayout,
                        cublasLtMatrixLayout_t cLayout, cublasLtMatrixLayout_t dLayout,
                        const cublasLtMatmulAlgo_t *algo, cublasLtMatmulHeuristicResult_t *result) {
  return call("cublasLtMatmulAlgoCheck", Kind::Call, [&] {
    find(handles, handle);
    const PlainProduct product =
        productOf(find(operations, desc), nullptr, find(layouts, aLayout), nullptr,
                  find(layouts, bLayout), nullptr, find(layouts, dLayout));
    layoutOfC(cLayout, find(layouts, dLayout));
    OpaqueAlgorithm algorithm;
    std::memcpy(&algorithm, algo, sizeof(algorithm));
    if (algorithm.marker != kMarker || algorithm.hash != algorithm.hashed() ||
        algorithm.shape != hashOf(product))
      refuse(CUDA_ERROR_INVALID_VALUE); // asking is no fault: a stored choice may be stale
    result->workspaceSize = algorithm.workspace;
    result->state = CUBLAS_STATUS_SUCCESS;
    result->wavesCount = 1;
  });
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t which,
                                                    void *value, size_t bytes, size_t *written) {
  return call("cublasLtMatmulAlgoConfigGetAttribute", Kind::Call, [&] {
    OpaqueAlgorithm algorithm;
    std::memcpy(&algorithm, algo, sizeof(algorithm));
    if (algorithm.marker != kMarker || algorithm.number >= kAlgorithmCount)
      refuse(CUDA_ERROR_INVALID_VALUE);
    const Algorithm &how = kAlgorithms[algorithm.number];
    const uint32_t result = which == CUBLASLT_ALGO_CONFIG_ID           ? algorithm.number
                            : which == CUBLASLT_ALGO_CONFIG_SPLITK_NUM ? std::max(1u, how.split)
                            : which == CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME ? how.scheme
                                                                             : 0;
    if (written)
      *written = sizeof(result);
    if (bytes == 0 && written)
      return;
    if (bytes < sizeof(result) || !value)
      refuse(CUDA_ERROR_INVALID_VALUE);
    std::memcpy(value, &result, sizeof(result));
  });
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t aLayout, const void *b,
                              cublasLtMatrixLayout_t bLayout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t cLayout, void *d,
                              cublasLtMatrixLayout_t dLayout, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspaceBytes, cudaStream_t stream) {
  return call("cublasLtMatmul", Kind::Call, [&] {
    find(handles, handle);
    if (!stream)
      broken(kRuleBroken, "the legacy stream is used");
    driver().streams.streams.check(stream);
    PlainProduct product = productOf(find(operations, desc), a, find(layouts, aLayout), b,
                                     find(layouts, bLayout), d, find(layouts, dLayout));
    const OpaqueAlgorithm algorithm = checked(algo, product);
    if (algorithm.fault == DoesNotRun)
      refuse(CUDA_ERROR_NOT_SUPPORTED);
    const bool isDouble = product.d.dtype == DType::F64;
    auto scalar = [&](const void *from) { // read now, as cuBLASLt reads scalars of the host
      return isDouble ? *static_cast<const double *>(from) : *static_cast<const float *>(from);
    };
    const double scale = scalar(alpha), old = scalar(beta);
    if (scale != 1 || (old != 0 && old != 1))
      broken(kRuleBroken,
             "a product with alpha {} and beta {}: products of plans have alpha 1, and beta 0 or 1",
             scale, old);
    const Layout &dAs = find(layouts, dLayout), &cAs = layoutOfC(cLayout, dAs);
    if (c && c != d && mayOverlap(bytesOf(c, cAs), bytesOf(d, dAs)))
      broken(kRuleBroken, "c of a product overlaps d, and is not d");
    if (old == 1 && (!c || cAs.leading != dAs.leading))
      broken(kRuleBroken, "a product with beta 1 that has no c, or one with other rows than d");
    product.accumulate = old == 1 && c == d;
    if (old == 1 && c != d) {
      product.residual = product.d;
      product.residual.address = reinterpret_cast<uint64_t>(c);
    }
    // The heuristic was promised the alignment of all matrices of a batch.
    auto bits = [](const void *pointer, const Layout &layout, cudaDataType_t type) {
      const uint64_t stride = layout.batch > 1 ? uint64_t(layout.stride) : 0;
      return reinterpret_cast<uint64_t>(pointer) | stride * lmc::byteWidth(dtypeOf(type));
    };
    const Layout &aAs = find(layouts, aLayout), &bAs = find(layouts, bLayout);
    const uint64_t pointers[] = {bits(a, aAs, aAs.type), bits(b, bAs, bAs.type),
                                 old == 1 ? bits(c, cAs, cAs.type) : 0,
                                 bits(d, dAs, dAs.type), product.bias};
    const char *const names[] = {"a", "b", "c", "d", "bias"};
    for (int i = 0; i < 5; ++i)
      if (pointers[i] % algorithm.alignment[i])
        broken(
            kRuleBroken,
            "{} of a product is at {:#x}, and the heuristic was promised an alignment of {} bytes",
            names[i], pointers[i], algorithm.alignment[i]);
    if (algorithm.workspace > workspaceBytes || (algorithm.workspace && !workspace))
      broken(CUDA_ERROR_INVALID_VALUE,
             "the algorithm needs {} bytes of workspace, and {} are given", algorithm.workspace,
             workspace ? workspaceBytes : 0);
    if (reinterpret_cast<uint64_t>(workspace) % 256)
      broken(CUDA_ERROR_INVALID_VALUE, "the workspace is not aligned to 256 bytes");
    if (algorithm.workspace) {
      product.workspace = reinterpret_cast<uint64_t>(workspace);
      product.workspaceBytes = workspaceBytes;
    }
    product.isWrong = algorithm.fault == SumsWrong;
    product.mixesRows = algorithm.fault == RowsMixed;
    submitProduct(stream, product, algorithm.number);
  });
}

} // extern "C"
