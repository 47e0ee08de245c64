# ccache, the linker and the sanitizers: how every target is built.

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      # The compiler says which headers a file includes; ccache need not preprocess the file for that.
      CCACHE_DEPEND=1 ${CCACHE})
endif()

# GCC collects its garbage when its heap has grown by a part of itself, at first at a few MB. With half a
# GiB it seldom has to, and takes a tenth less time.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options(--param=ggc-min-heapsize=524288)
endif()

# Tests that compile small programs link them with mold. It does not link the build: mold 1.10 lets the pages that the
# loader makes read-only (RELRO) begin where thread-local variables do, which may be on the page before their segment, and
# then the program does not start; and without RELRO it does not end for some sizes of segments.
find_program(MOLD mold)
if(MOLD)
  set(LMC_FAST_LINKER -fuse-ld=mold)
endif()
find_program(LMC_LLD ld.lld HINTS /usr/lib/llvm-22/bin)
if(LMC_LLD)
  get_filename_component(LMC_LLD_DIR ${LMC_LLD} DIRECTORY)
  add_link_options(-B${LMC_LLD_DIR} -fuse-ld=lld)
endif()

if(LMC_SANITIZE)
  add_compile_options(-fsanitize=${LMC_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${LMC_SANITIZE})
endif()

# lmc_sanitized_headers(TARGET HEADERS...): in a build with sanitizers, where reading headers is a third of the work,
# the target has a precompiled header. One library owns it; those with the same options reuse it. A target with
# OpenMP, or with HEADERS that it needs beside the others, has its own.
function(lmc_sanitized_headers target)
  if(NOT LMC_SANITIZE)
    return()
  endif()
  target_compile_options(${target} PRIVATE -fpch-preprocess) # for ccache
  get_target_property(links ${target} LINK_LIBRARIES)
  if(target STREQUAL lmc_ground_support OR ARGN OR "OpenMP::OpenMP_CXX" IN_LIST links)
    target_precompile_headers(${target} PRIVATE ${CMAKE_SOURCE_DIR}/cmake/SanitizedHeaders.h ${ARGN})
  else()
    target_precompile_headers(${target} REUSE_FROM lmc_ground_support)
  endif()
endfunction()

# lmc_control_code(TARGET FAST_FILES...): what decides, reads and reports, and does no arithmetic over
# arrays, but for FAST_FILES. -O1 takes a fifth off its build.
function(lmc_control_code target)
  if(LMC_SANITIZE) # the preset says how
    return()
  endif()
  target_compile_options(${target} PRIVATE -O1)
  foreach(file ${ARGN})
    set_property(SOURCE ${file} APPEND PROPERTY COMPILE_OPTIONS -O3)
  endforeach()
endfunction()
