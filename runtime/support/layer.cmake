# libcrypto computes SHA-256.
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
target_link_libraries(${layer} PRIVATE OpenSSL::Crypto)
