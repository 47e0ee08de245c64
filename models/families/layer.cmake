# Each family has functions of the same names, and a new one begins as a copy of an old one.
lmc_compile_alone(${sources})
