# lmc_compile_together(TARGET FILES...): the compiler reads small files of a target one after the
# other as one file (CMake's "unity build"), and so reads their headers, and instantiates the templates
# of these, once for all of them. That takes two thirds off the build of a library.
#
# A group has at most LMC_UNITY_BYTES of source text, and a longer file stays alone, so that a change of
# one file still costs one compiler run of a few seconds. A file with compile options or definitions of
# its own stays alone, too. Files of one group share one scope: names in their anonymous namespaces must
# differ. Where they cannot, a layer.cmake says lmc_compile_alone(FILES...), and why.
#
# LMC_UNITY=OFF (the preset `debug`) compiles each file alone, which is what tools for editors need.
option(LMC_UNITY "Compile small source files together" ON)
set(LMC_UNITY_BYTES 40000)

function(lmc_compile_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

function(lmc_compile_together target)
  if(NOT LMC_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # GCC takes a file that is included for a header, in which an anonymous namespace would be a mistake.
  target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  set(group)
  set(filled 0)
  foreach(source ${ARGN})
    get_source_file_property(alone ${source} SKIP_UNITY_BUILD_INCLUSION)
    if(alone OR NOT source MATCHES "\\.cpp$")
      continue()
    endif()
    file(SIZE ${source} bytes)
    math(EXPR filled "${filled} + ${bytes}")
    if(filled GREATER LMC_UNITY_BYTES)
      set(group)
      set(filled ${bytes})
    endif()
    list(APPEND group ${source})
    list(GET group 0 first)
    list(LENGTH group length)
    get_filename_component(name ${first} NAME_WE)
    if(length GREATER 1) # a file without a group is compiled alone
      set_source_files_properties(${group} PROPERTIES UNITY_GROUP ${name})
    endif()
  endforeach()
endfunction()
