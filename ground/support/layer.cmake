# libcrypto computes SHA-256.
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
target_link_libraries(${layer} PRIVATE OpenSSL::Crypto)
# Every program prints which release, and which commit of it, it is built from; checkpoints record it.
set_source_files_properties(${here}/Release.cpp PROPERTIES COMPILE_DEFINITIONS
  "LMC_VERSION=\"${PROJECT_VERSION}\";LMC_COMMIT=\"${LMC_COMMIT}\";LMC_RELEASE=\"${LMC_RELEASE}\"")
lmc_compile_alone(${here}/Release.cpp)
