target_link_libraries(${layer} PUBLIC xxhash)
lmc_control_code(${layer})
