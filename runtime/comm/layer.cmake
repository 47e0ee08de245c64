find_package(Threads REQUIRED)
target_link_libraries(${layer} PUBLIC Threads::Threads)
