find_package(OpenMP REQUIRED)
# OpenMP is PRIVATE, because with its compiler flag the targets that link this library could not use
# MLIR's precompiled header.
target_link_libraries(${layer} PUBLIC xxhash PRIVATE OpenMP::OpenMP_CXX)
# Without fused multiply-adds, initial weights have the same bits on every machine.
set_source_files_properties(${here}/NormalStream.cpp PROPERTIES
  COMPILE_OPTIONS "-ffp-contract=off;-fno-math-errno")
lmc_control_code(${layer} ${here}/NormalStream.cpp ${here}/Initializer.cpp)
