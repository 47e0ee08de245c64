# What is needed of CUDA, from a CUDA toolkit or from NVIDIA's Python wheels, such as
# nvidia-cuda-nvrtc that `./dev setup` installs. NVRTC makes CUDA kernels: its header is needed now,
# its library when lmc compiles for a GPU.

set(LMC_VENV "$ENV{LMC_VENV}" CACHE PATH "The Python environment of ./dev setup")
if(NOT LMC_VENV)
  set(LMC_VENV "$ENV{HOME}/.cache/lmc/venv")
  if(NOT "$ENV{XDG_CACHE_HOME}" STREQUAL "")
    set(LMC_VENV "$ENV{XDG_CACHE_HOME}/lmc/venv")
  endif()
endif()
file(GLOB wheels "${LMC_VENV}/lib/python3*/site-packages/nvidia/cu*"
     "${LMC_VENV}/lib/python3*/site-packages/nvidia/cuda_nvrtc")
set(roots "$ENV{CUDA_HOME}" "$ENV{CUDA_PATH}" /usr/local/cuda ${wheels})
list(REMOVE_ITEM roots "")
find_path(LMC_NVRTC_INCLUDE nvrtc.h HINTS ${roots} PATH_SUFFIXES include)
# Headers of the driver and of cuBLASLt: the CUDA device of lmc-run needs them when it is built, and
# the libraries when it opens a GPU.
find_path(LMC_CUDA_INCLUDE cublasLt.h HINTS ${roots} PATH_SUFFIXES include)
if(LMC_CUDA_INCLUDE AND NOT EXISTS "${LMC_CUDA_INCLUDE}/cuda.h")
  set(LMC_CUDA_INCLUDE "LMC_CUDA_INCLUDE-NOTFOUND" CACHE PATH "" FORCE)
endif()
set(parts "runs on the CPU")
set(missing)
if(LMC_CUDA_INCLUDE)
  list(APPEND parts "runs on CUDA GPUs (${LMC_CUDA_INCLUDE}/cuda.h)")
else()
  list(APPEND missing "the CUDA device (found no cuda.h and cublasLt.h)")
endif()
if(LMC_NVRTC_INCLUDE)
  get_filename_component(root ${LMC_NVRTC_INCLUDE} DIRECTORY)
  find_library(LMC_NVRTC_LIBRARY NAMES nvrtc libnvrtc.so.13 libnvrtc.so.12 HINTS ${root} ${roots}
               PATH_SUFFIXES lib64 lib)
  list(APPEND parts "compiles for CUDA GPUs (${LMC_NVRTC_INCLUDE}/nvrtc.h)")
else()
  list(APPEND missing "the CUDA code generator (found no nvrtc.h: ./dev setup installs it)")
endif()
list(JOIN parts ", " parts)
list(JOIN missing ", " missing)
if(NOT missing)
  set(missing "nothing")
endif()
message(STATUS "lmc: ${parts}; left out: ${missing}")
