# zlib and zstd decompress text.
find_package(ZLIB REQUIRED)
find_path(ZSTD_INCLUDE zstd.h REQUIRED)
find_library(ZSTD_LIBRARY zstd REQUIRED)
target_include_directories(${layer} PRIVATE ${ZSTD_INCLUDE})
target_link_libraries(${layer} PRIVATE ZLIB::ZLIB ${ZSTD_LIBRARY})
# dlopen opens the plug-in that reads Parquet.
target_link_libraries(${layer} PRIVATE ${CMAKE_DL_LIBS})
# So that whoever builds lmc-data can run it on Parquet.
if(TARGET lmc-parquet)
  add_dependencies(${layer} lmc-parquet)
endif()
