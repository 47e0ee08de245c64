# The CUDA target: the device library as text, and NVRTC if it is installed.
file(GLOB device CONFIGURE_DEPENDS ${here}/cuda/device/*.cuh)
lmc_embed_text(${made}/device_library.inc ${device})
list(APPEND sources ${made}/device_library.inc)
target_include_directories(${layer} PRIVATE ${made})
if(LMC_NVRTC_INCLUDE)
  list(REMOVE_ITEM sources ${here}/cuda/nvrtc/NvrtcMissing.cpp)
  set_source_files_properties(${here}/cuda/nvrtc/Nvrtc.cpp PROPERTIES
    COMPILE_DEFINITIONS LMC_NVRTC_LIBRARY="$<IF:$<BOOL:${LMC_NVRTC_LIBRARY}>,${LMC_NVRTC_LIBRARY},>"
    INCLUDE_DIRECTORIES ${LMC_NVRTC_INCLUDE})
else()
  list(REMOVE_ITEM sources ${here}/cuda/nvrtc/Nvrtc.cpp)
endif()
# The CPU target: LLVM's linker LLD. The LLD archives do not contain LLVM, which comes from the
# shared library.
find_library(LMC_LLD_ELF lldELF REQUIRED HINTS ${LLVM_LIBRARY_DIR})
find_library(LMC_LLD_COMMON lldCommon REQUIRED HINTS ${LLVM_LIBRARY_DIR})
find_package(ZLIB REQUIRED)
find_library(LMC_ZSTD zstd REQUIRED)
target_link_libraries(${layer} PUBLIC ${LMC_LLD_ELF} ${LMC_LLD_COMMON} ZLIB::ZLIB ${LMC_ZSTD})
