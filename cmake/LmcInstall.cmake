# What `cmake --install` puts below its prefix, which may be moved afterwards:
#
#   bin/               the programs, and lmc-wandb
#   lib/lmc/           the libraries that they link and that a bare machine does not have
#   share/lmc/configs/ jobs
#   share/doc/lmc/     docs/, and licenses/ with the notices of all libraries
#
# The component `lmc-run` is lmc-run with its libraries, for the nodes of a cluster; the component `lmc`
# is the rest. All programs are built by the target `programs`.

# Not lib itself: a prefix such as /usr/local shares it with other software.
set(LMC_LIBRARIES lib/lmc)

function(lmc_install_program name)
  # A RPATH, unlike a RUNPATH, holds for the libraries of the libraries too, and goes before
  # LD_LIBRARY_PATH, in which clusters have other releases of the same libraries.
  target_link_options(${name} PRIVATE LINKER:--disable-new-dtags)
  set_target_properties(${name} PROPERTIES INSTALL_RPATH "$ORIGIN/../${LMC_LIBRARIES}")
  set(component lmc)
  if(name STREQUAL "lmc-run")
    set(component lmc-run)
  endif()
  install(TARGETS ${name} RUNTIME DESTINATION bin COMPONENT ${component})
  set_property(GLOBAL APPEND PROPERTY LMC_INSTALLED $<TARGET_FILE:${name}>)
endfunction()

# A plug-in says in ${install_rpath} where its libraries, which are not installed, are found.
function(lmc_install_plugin name)
  set_target_properties(${name} PROPERTIES INSTALL_RPATH "${install_rpath}")
  install(TARGETS ${name} LIBRARY DESTINATION ${LMC_LIBRARIES} COMPONENT lmc)
endfunction()

# To be called after all programs are declared.
function(lmc_install_rest)
  install(DIRECTORY docs/ DESTINATION share/doc/lmc COMPONENT lmc)
  install(DIRECTORY models/configs DESTINATION share/lmc COMPONENT lmc)
  find_program(LMC_PATCHELF patchelf)
  get_property(programs GLOBAL PROPERTY LMC_INSTALLED)
  install(CODE "
    set(PROGRAMS \"${programs}\")
    set(LIBRARIES \"${LMC_LIBRARIES}\")
    set(SYSTEM \"/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}:/usr/lib64\")
    set(PATCHELF \"${LMC_PATCHELF}\")
    set(LLVM \"${LLVM_VERSION_MAJOR}\")
    include(\"${CMAKE_SOURCE_DIR}/cmake/BundleLibraries.cmake\")" ALL_COMPONENTS)
endfunction()
