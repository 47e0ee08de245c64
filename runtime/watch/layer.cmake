# OpenMP is PRIVATE, as in runtime/step.
target_link_libraries(${layer} PUBLIC xxhash PRIVATE OpenMP::OpenMP_CXX)
set_source_files_properties(${here}/UpdateSums.cpp PROPERTIES COMPILE_OPTIONS "-fno-math-errno")
lmc_control_code(${layer} ${here}/UpdateSums.cpp)
