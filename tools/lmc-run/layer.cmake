# `./dev gpu pack` puts the libraries that lmc-run links into a folder `lib` beside its `bin`. An
# RPATH holds for the libraries of these libraries too; a RUNPATH would not.
set_target_properties(${layer} PROPERTIES BUILD_RPATH "$ORIGIN/../lib")
target_link_options(${layer} PRIVATE LINKER:--disable-new-dtags)
lmc_control_code(${layer})
