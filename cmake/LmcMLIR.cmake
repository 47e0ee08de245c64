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
  if(target STREQUAL lmc_dialects_interfaces)
    target_precompile_headers(${target} PRIVATE ${CMAKE_SOURCE_DIR}/cmake/MLIRHeaders.h)
  else()
    target_precompile_headers(${target} REUSE_FROM lmc_dialects_interfaces)
  endif()
endfunction()

# lmc_mlir_tablegen(LAYER OUT TD GENERATOR...): OUT, which `mlir-tblgen GENERATOR...` makes of TD.
function(lmc_mlir_tablegen layer out td)
  add_custom_command(OUTPUT ${out}
    COMMAND ${LMC_MLIR_TBLGEN} ${ARGN} -I ${CMAKE_SOURCE_DIR} -I ${CMAKE_BINARY_DIR}
            -I ${MLIR_INCLUDE_DIRS} ${td} -o ${out}
            --write-if-changed -d ${out}.d
    DEPENDS ${td} DEPFILE ${out}.d)
  set_property(TARGET ${layer} APPEND PROPERTY LMC_GENERATED ${out})
endfunction()

# What the .td files of a folder say, as C++:
#   NAMEOps.td     a dialect of the folder's name: its ops, types, attributes and enums
#   Passes.td      passes
#   others         op interfaces
function(lmc_tablegen layer folder)
  get_filename_component(dialect ${folder} NAME)
  file(GLOB tds CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.td
       ${CMAKE_SOURCE_DIR}/${folder}/*/Passes.td)
  foreach(td ${tds})
    file(RELATIVE_PATH inside ${CMAKE_SOURCE_DIR} ${td})
    get_filename_component(place ${CMAKE_BINARY_DIR}/${inside} DIRECTORY)
    file(MAKE_DIRECTORY ${place})
    get_filename_component(stem ${td} NAME_WE)
    if(stem STREQUAL "Passes")
      get_filename_component(group ${place} NAME)
      string(SUBSTRING ${group} 0 1 first)
      string(TOUPPER ${first} first)
      string(SUBSTRING ${group} 1 -1 rest)
      lmc_mlir_tablegen(${layer} ${place}/Passes.h.inc ${td} -gen-pass-decls -name ${first}${rest})
    elseif(stem MATCHES "(.*)Ops$")
      set(camel ${place}/${CMAKE_MATCH_1})
      foreach(kind op:Ops dialect:Dialect typedef:Types attrdef:Attributes enum:Enums)
        string(REPLACE ":" ";" kind ${kind})
        list(GET kind 0 generator)
        list(GET kind 1 suffix)
        set(only)
        if(generator STREQUAL "dialect")
          set(only -dialect=${dialect})
        elseif(generator MATCHES "def$")
          set(only -${generator}s-dialect=${dialect})
        endif()
        lmc_mlir_tablegen(${layer} ${camel}${suffix}.h.inc ${td} -gen-${generator}-decls ${only})
        lmc_mlir_tablegen(${layer} ${camel}${suffix}.cpp.inc ${td} -gen-${generator}-defs ${only})
      endforeach()
    else()
      lmc_mlir_tablegen(${layer} ${place}/${stem}.h.inc ${td} -gen-op-interface-decls)
      lmc_mlir_tablegen(${layer} ${place}/${stem}.cpp.inc ${td} -gen-op-interface-defs)
    endif()
  endforeach()
  get_target_property(generated ${layer} LMC_GENERATED)
  if(generated)
    add_custom_target(${layer}_tablegen DEPENDS ${generated})
    add_dependencies(${layer} ${layer}_tablegen)
  endif()
endfunction()
