# MLIR and LLVM as the distribution ships them: the shared libraries only, because
# linking archives beside them registers everything twice.

find_package(MLIR 22 REQUIRED CONFIG HINTS /usr/lib/llvm-22/lib/cmake/mlir)
list(APPEND CMAKE_MODULE_PATH ${MLIR_CMAKE_DIR} ${LLVM_CMAKE_DIR})
include(TableGen)
include(AddLLVM)
include(AddMLIR)

# The headers that nearly every file of the compiler includes, compiled once.
# One target owns them; the others reuse its precompiled header.
function(lmc_mlir_target target)
  target_include_directories(${target} SYSTEM PUBLIC ${MLIR_INCLUDE_DIRS} ${LLVM_INCLUDE_DIRS})
  target_compile_definitions(${target} PUBLIC ${LLVM_DEFINITIONS})
  target_compile_options(${target} PRIVATE -fno-rtti -fno-exceptions -Wno-init-list-lifetime
                         -fpch-preprocess)
  if(target STREQUAL lmc_dialects)
    target_precompile_headers(${target} PRIVATE ${CMAKE_SOURCE_DIR}/cmake/MLIRHeaders.h)
  else()
    target_precompile_headers(${target} REUSE_FROM lmc_dialects)
  endif()
endfunction()

# lmc_tablegen(TARGET FILE.td GENERATOR OUTPUT ...): runs mlir-tblgen on FILE.td for
# each (GENERATOR, OUTPUT) pair; outputs land beside the source's mirror in the build.
function(lmc_tablegen target td)
  set(outputs)
  set(pairs ${ARGN})
  while(pairs)
    list(POP_FRONT pairs generator output)
    set(out ${CMAKE_CURRENT_BINARY_DIR}/${output})
    add_custom_command(OUTPUT ${out}
      COMMAND mlir-tblgen ${generator} -I ${CMAKE_SOURCE_DIR} -I ${MLIR_INCLUDE_DIRS}
              ${CMAKE_CURRENT_SOURCE_DIR}/${td} -o ${out} --write-if-changed
              -d ${out}.d
      DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${td}
      DEPFILE ${out}.d)
    list(APPEND outputs ${out})
  endwhile()
  add_custom_target(${target} DEPENDS ${outputs})
endfunction()
