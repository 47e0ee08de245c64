find_package(OpenMP REQUIRED)
# OpenMP is the sources' own: with its flag others could not take MLIR's precompiled header.
target_link_libraries(${layer} PUBLIC xxhash PRIVATE OpenMP::OpenMP_CXX)
# Initial weights are the same bits on every machine: no fused multiply-add.
set_source_files_properties(${here}/NormalStream.cpp PROPERTIES
  COMPILE_OPTIONS "-ffp-contract=off;-fno-math-errno")
