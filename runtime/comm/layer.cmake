find_package(Threads REQUIRED)
# Gloo connects ranks by TCP. Debian's package has no CMake target that says where its headers are.
find_path(GLOO_INCLUDE gloo/context.h REQUIRED)
find_library(GLOO_LIBRARY gloo REQUIRED)
target_include_directories(${layer} SYSTEM PRIVATE ${GLOO_INCLUDE})
target_link_libraries(${layer} PUBLIC Threads::Threads PRIVATE ${GLOO_LIBRARY})
lmc_control_code(${layer} ${here}/RankOrderSum.cpp)
