# Arrow's reader of Parquet, from PyPI's pyarrow, which `./dev setup` installs: the wheel has the
# headers and the libraries.
option(LMC_BUILD_PARQUET "Build the plug-in that reads Parquet, where pyarrow is found" ON)
if(LMC_BUILD_PARQUET)
  file(GLOB wheel "${LMC_VENV}/lib/python3*/site-packages/pyarrow")
  find_path(LMC_ARROW_INCLUDE parquet/arrow/reader.h HINTS ${wheel} PATH_SUFFIXES include)
endif()
if(LMC_BUILD_PARQUET AND LMC_ARROW_INCLUDE)
  get_filename_component(wheel ${LMC_ARROW_INCLUDE} DIRECTORY)
  # A wheel has its libraries by their versions only: libarrow.so.2600.
  file(GLOB needs ${wheel}/libarrow.so* ${wheel}/libparquet.so*)
  if(NOT needs)
    set(needs arrow parquet)
  endif()
  set(needs_include ${LMC_ARROW_INCLUDE})
  # In a Python package of lmc, its folder lib/lmc, and pyarrow beside that package.
  set(install_rpath $ORIGIN/../../../pyarrow ${wheel})
  message(STATUS "lmc: reads Parquet (${LMC_ARROW_INCLUDE}/parquet/arrow/reader.h)")
elseif(LMC_BUILD_PARQUET)
  message(STATUS "lmc: left out: the plug-in that reads Parquet (found no parquet/arrow/reader.h: "
                 "./dev setup installs pyarrow)")
else()
  message(STATUS "lmc: left out: the plug-in that reads Parquet (LMC_BUILD_PARQUET is off)")
endif()
