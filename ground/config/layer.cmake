lmc_control_code(${layer})
