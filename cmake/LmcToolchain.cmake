# ccache, the linker and the sanitizers: how every target is built.

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE})
endif()

find_program(MOLD mold)
if(MOLD)
  add_link_options(-fuse-ld=mold)
endif()

if(LMC_SANITIZE)
  add_compile_options(-fsanitize=${LMC_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${LMC_SANITIZE})
endif()
