find_package(OpenMP REQUIRED)
find_package(Threads REQUIRED)
find_path(DNNL_INCLUDE oneapi/dnnl/dnnl.hpp REQUIRED)
find_library(DNNL_LIBRARY dnnl REQUIRED)

list(FILTER sources EXCLUDE REGEX "/device/cpu/kernels/") # compiled below

# CpuDevice.cpp calls the specialisations of resolve(), which the files of cpu/commands define.
lmc_compile_alone(${here}/cpu/CpuDevice.cpp)

# No library of CUDA is linked: the CUDA device opens them when a plan for a GPU runs.
if(LMC_CUDA_INCLUDE)
  list(FILTER sources EXCLUDE REGEX "/device/cuda/Missing.cpp$")
  if(LMC_NCCL_INCLUDE)
    list(FILTER sources EXCLUDE REGEX "/device/cuda/NcclMissing.cpp$")
  else()
    list(FILTER sources EXCLUDE REGEX "/device/cuda/Nccl.cpp$")
  endif()
else()
  list(FILTER sources EXCLUDE REGEX "/device/cuda/")
  list(APPEND sources ${here}/cuda/Missing.cpp)
endif()

# The hand-written CPU kernels are compiled once per instruction set, and the program selects one
# set at run time. With -ffp-contract=fast the compiler turns vector multiplications and additions
# into fused multiply-adds.
file(GLOB kernel_sources CONFIGURE_DEPENDS ${here}/cpu/kernels/*.cpp)
function(lmc_cpu_kernels isa name)
  add_library(lmc_kernels_${isa} OBJECT ${kernel_sources})
  target_compile_options(lmc_kernels_${isa} PRIVATE -O3 -ffp-contract=fast -fno-math-errno
                         -Wno-psabi ${ARGN})
  if(LMC_SANITIZE AND NOT LMC_SANITIZE_KERNELS)
    target_compile_options(lmc_kernels_${isa} PRIVATE -fno-sanitize=all)
  endif()
  target_compile_definitions(lmc_kernels_${isa} PRIVATE LMC_ISA=${isa} LMC_ISA_NAME="${name}")
  target_sources(${layer} PRIVATE $<TARGET_OBJECTS:lmc_kernels_${isa}>)
endfunction()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  lmc_cpu_kernels(baseline "x86-64")
  lmc_cpu_kernels(avx2 "x86-64-v3" -mavx2 -mfma)
  lmc_cpu_kernels(avx512 "x86-64-v4" -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma
                  -mprefer-vector-width=512)
else()
  lmc_cpu_kernels(baseline "${CMAKE_SYSTEM_PROCESSOR}")
endif()

if(LMC_SANITIZE MATCHES "thread")
  list(APPEND sources ${CMAKE_SOURCE_DIR}/test/tsan/OpenMp.cpp)
endif()
target_include_directories(${layer} PUBLIC ${DNNL_INCLUDE})
if(LMC_CUDA_INCLUDE)
  target_include_directories(${layer} SYSTEM PRIVATE ${LMC_CUDA_INCLUDE})
  if(LMC_NCCL_INCLUDE)
    target_include_directories(${layer} SYSTEM PRIVATE ${LMC_NCCL_INCLUDE})
  endif()
  target_link_libraries(${layer} PRIVATE xxhash)
endif()
# OpenMP is PRIVATE: its compiler flag would otherwise reach the targets that link this library, and
# these could then not use MLIR's precompiled header.
target_link_libraries(${layer} PUBLIC ${DNNL_LIBRARY} Threads::Threads ${CMAKE_DL_LIBS}
                      PRIVATE OpenMP::OpenMP_CXX)
