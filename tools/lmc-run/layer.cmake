# `./dev gpu pack` puts the libraries that lmc-run links into a folder `lib` beside its `bin`.
set_target_properties(${name} PROPERTIES BUILD_RPATH "$ORIGIN/../lib")
lmc_control_code(${name})
lmc_control_code(${layer})
