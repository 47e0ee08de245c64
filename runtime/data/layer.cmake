# xxHash computes the checksums of token files.
target_link_libraries(${layer} PUBLIC xxhash)
