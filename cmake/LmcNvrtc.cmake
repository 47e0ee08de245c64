# NVRTC, which makes CUDA kernels: its header now, its library when lmc compiles for a GPU.
# From a CUDA toolkit, or from the Python wheel nvidia-cuda-nvrtc that `./dev setup` installs.

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
if(LMC_NVRTC_INCLUDE)
  get_filename_component(root ${LMC_NVRTC_INCLUDE} DIRECTORY)
  find_library(LMC_NVRTC_LIBRARY NAMES nvrtc libnvrtc.so.13 libnvrtc.so.12 HINTS ${root} ${roots}
               PATH_SUFFIXES lib64 lib)
  message(STATUS "lmc: runs on the CPU, compiles for the CPU and CUDA (${LMC_NVRTC_INCLUDE}/nvrtc.h); "
                 "left out: the CUDA device of lmc-run, which this release does not have")
else()
  message(STATUS "lmc: runs on the CPU; left out: the CUDA device and code generator (found no "
                 "nvrtc.h: ./dev setup installs it)")
endif()
