// What the benches of matrix products share: cuBLASLt, opened at run time, so that they are compiled on
// machines that do not have it.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>

#define CHECK(call)                                                                                \
  do {                                                                                             \
    if (int error = int(call)) {                                                                   \
      std::fprintf(stderr, "bench: error: %s: %d\n", #call, error);                                 \
      std::exit(2);                                                                                \
    }                                                                                              \
  } while (false)

#define CUBLASLT_FUNCTIONS(FUNCTION)                                                               \
  FUNCTION(cublasLtCreate)                                                                         \
  FUNCTION(cublasLtMatmul)                                                                         \
  FUNCTION(cublasLtMatmulAlgoGetHeuristic)                                                         \
  FUNCTION(cublasLtMatmulDescCreate)                                                               \
  FUNCTION(cublasLtMatmulDescDestroy)                                                              \
  FUNCTION(cublasLtMatmulDescSetAttribute)                                                         \
  FUNCTION(cublasLtMatmulPreferenceCreate)                                                         \
  FUNCTION(cublasLtMatmulPreferenceDestroy)                                                        \
  FUNCTION(cublasLtMatmulPreferenceSetAttribute)                                                   \
  FUNCTION(cublasLtMatrixLayoutCreate)                                                             \
  FUNCTION(cublasLtMatrixLayoutDestroy)

// The functions of the library that is opened.
struct Library {
#define FUNCTION(name) decltype(&::name) name = nullptr;
  CUBLASLT_FUNCTIONS(FUNCTION)
#undef FUNCTION
};
inline Library lt;

inline void openLibrary() {
  const char *named = std::getenv("LMC_CUBLASLT");
  void *library = dlopen(named ? named : "libcublasLt.so.13", RTLD_NOW);
  if (!library) {
    std::fprintf(stderr, "bench: error: cuBLASLt cannot be opened: %s; LMC_CUBLASLT may name it\n",
                 dlerror());
    std::exit(2);
  }
#define FUNCTION(name)                                                                             \
  if (!(lt.name = reinterpret_cast<decltype(lt.name)>(dlsym(library, #name)))) {                   \
    std::fprintf(stderr, "bench: error: cuBLASLt has no %s\n", #name);                              \
    std::exit(2);                                                                                  \
  }
  CUBLASLT_FUNCTIONS(FUNCTION)
#undef FUNCTION
}

// A row-major matrix is the transpose of a column-major one.
inline cublasLtMatrixLayout_t layout(cudaDataType_t type, long rows, long columns) {
  cublasLtMatrixLayout_t made;
  CHECK(lt.cublasLtMatrixLayoutCreate(&made, type, uint64_t(columns), uint64_t(rows), columns));
  return made;
}
