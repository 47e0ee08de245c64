# xxHash computes the checksums of checkpoints.
target_link_libraries(${layer} PUBLIC xxhash)
lmc_control_code(${layer})
# Checkpoints record which release, and which commit of it, wrote them; a pack goes on with what an
# interrupted one of the same commit has left.
set_source_files_properties(${here}/Release.cpp PROPERTIES
  COMPILE_DEFINITIONS "LMC_VERSION=\"${PROJECT_VERSION}\";LMC_COMMIT=\"${LMC_COMMIT}\"")
