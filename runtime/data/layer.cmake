# Checksums.
target_link_libraries(${layer} PUBLIC xxhash)
