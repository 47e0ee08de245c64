# Writes what follows from the table of commands, and the C++ code that reads and writes plans.
find_package(Python3 3.11 COMPONENTS Interpreter REQUIRED)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${here}/commands.toml
             ${here}/commands.py)
execute_process(COMMAND ${Python3_EXECUTABLE} ${here}/commands.py ${CMAKE_BINARY_DIR}
                COMMAND_ERROR_IS_FATAL ANY)
find_program(FLATC flatc REQUIRED)
set(plan_header ${CMAKE_BINARY_DIR}/plan_generated.h)
add_custom_command(OUTPUT ${plan_header}
  COMMAND ${FLATC} --cpp --scoped-enums --gen-object-api --gen-all -I ${made}
          -o ${CMAKE_BINARY_DIR} ${here}/plan.fbs
  DEPENDS ${here}/plan.fbs ${made}/commands.fbs)
add_custom_target(lmc_plan_schema DEPENDS ${plan_header})
add_dependencies(${layer} lmc_plan_schema)
target_link_libraries(${layer} PUBLIC xxhash)
