# The checker shares no function with the passes that it checks, by an overload of one name neither.
lmc_compile_alone(${here}/CheckAliasing.cpp)
