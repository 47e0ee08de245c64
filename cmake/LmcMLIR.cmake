# MLIR and LLVM as the distribution ships them: the shared libraries only, because
# linking archives beside them registers everything twice.

find_package(MLIR 22.1 REQUIRED CONFIG HINTS /usr/lib/llvm-22/lib/cmake/mlir)
list(APPEND CMAKE_MODULE_PATH ${MLIR_CMAKE_DIR} ${LLVM_CMAKE_DIR})
find_program(LMC_MLIR_TBLGEN mlir-tblgen REQUIRED HINTS ${LLVM_TOOLS_BINARY_DIR})
include(TableGen)
include(AddLLVM)
include(AddMLIR)

# The headers that nearly every file of the compiler includes, compiled once.
# One target owns them; the others reuse its precompiled header.
function(lmc_mlir_target target)
  target_include_directories(${target} SYSTEM PUBLIC ${MLIR_INCLUDE_DIRS} ${LLVM_INCLUDE_DIRS})
  separate_arguments(definitions NATIVE_COMMAND "${LLVM_DEFINITIONS}")
  target_compile_definitions(${target} PUBLIC ${definitions})
  # -O1: a compile spends its time inside libMLIR and libLLVM; this halves the build.
  target_compile_options(${target} PRIVATE -O1 -fno-rtti -fno-exceptions -Wno-init-list-lifetime
                         -fpch-preprocess)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL EXECUTABLE) # as the libraries, or the precompiled header would not do
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
  if(target STREQUAL lmc_dialects)
    target_precompile_headers(${target} PRIVATE ${CMAKE_SOURCE_DIR}/cmake/MLIRHeaders.h)
  else()
    target_precompile_headers(${target} REUSE_FROM lmc_dialects)
  endif()
endfunction()
