# Generates the C++ code that reads and writes plans.
find_program(FLATC flatc REQUIRED)
set(plan_header ${CMAKE_BINARY_DIR}/plan_generated.h)
add_custom_command(OUTPUT ${plan_header}
  COMMAND ${FLATC} --cpp --scoped-enums --gen-object-api -o ${CMAKE_BINARY_DIR} ${here}/plan.fbs
  DEPENDS ${here}/plan.fbs)
add_custom_target(lmc_plan_schema DEPENDS ${plan_header})
add_dependencies(${layer} lmc_plan_schema)
target_link_libraries(${layer} PUBLIC xxhash)
