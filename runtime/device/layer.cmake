find_package(OpenMP REQUIRED)
find_package(Threads REQUIRED)
find_path(DNNL_INCLUDE oneapi/dnnl/dnnl.hpp REQUIRED)
find_library(DNNL_LIBRARY dnnl REQUIRED)

# The SIMT device is a separate library for tests; lmc-run is not linked with it.
list(FILTER sources EXCLUDE REGEX "/device/(simt|cpu/kernels)/")

# It calls the specialisations of resolve, which the files of cpu/commands define.
lmc_compile_alone(${here}/cpu/CpuDevice.cpp)

# The CUDA device opens its libraries when a plan asks for it, and links none of them.
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
# OpenMP is PRIVATE, because with its compiler flag the targets that link this library could not use
# MLIR's precompiled header.
target_link_libraries(${layer} PUBLIC ${DNNL_LIBRARY} Threads::Threads ${CMAKE_DL_LIBS}
                      PRIVATE OpenMP::OpenMP_CXX)

# Defines lmc_simt_library(NAME), which adds the library of the SIMT device. This device runs CUDA
# kernels on the host; at run time it compiles them with the same C++ compiler that builds lmc.
if(LMC_BUILD_TESTS)
  find_package(Boost 1.74 REQUIRED COMPONENTS context)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/simt/include)
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/compiler/targets/cuda/device
       ${CMAKE_BINARY_DIR}/simt/include/lmc SYMBOLIC)
  file(GLOB simt_sources CONFIGURE_DEPENDS ${here}/simt/*.cpp)
  set_property(GLOBAL PROPERTY LMC_SIMT_SOURCES ${simt_sources})
  function(lmc_simt_library name)
    get_property(simt_sources GLOBAL PROPERTY LMC_SIMT_SOURCES)
    add_library(${name} STATIC ${ARGN} ${simt_sources})
    lmc_compile_together(${name} ${simt_sources})
    target_link_libraries(${name} PUBLIC lmc_runtime_plan Boost::context ${CMAKE_DL_LIBS}
                          PRIVATE lmc_runtime_device)
    target_compile_definitions(${name} PRIVATE LMC_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
      LMC_SIMT_FOLDER="${CMAKE_BINARY_DIR}/simt" LMC_SIMT_COMPILER="${CMAKE_CXX_COMPILER}"
      LMC_SIMT_COMPILER_VERSION="${CMAKE_CXX_COMPILER_VERSION}")
  endfunction()
endif()
