# The checker shares no function with the passes that it checks. Compiled with them, it could take
# theirs by accident, as a better overload of the same name.
lmc_compile_alone(${here}/CheckAliasing.cpp)
