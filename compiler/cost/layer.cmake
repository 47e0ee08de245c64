# Device specs are part of the program.
file(GLOB devices CONFIGURE_DEPENDS ${here}/devices/*.toml)
lmc_embed_text(${made}/devices.inc ${devices})
list(APPEND sources ${made}/devices.inc)
target_include_directories(${layer} PRIVATE ${made})
