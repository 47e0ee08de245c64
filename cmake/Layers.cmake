# The folders of the product and the arrows between them, ground first.
#
#   lmc_layer(FOLDER [MLIR] ARROWS...)    the library of a folder
#   lmc_program(FOLDER [MLIR] ARROWS...)  a program
#   lmc_plugin(FOLDER ARROWS...)          a shared library that a program opens on demand
#   lmc_script(FOLDER)                    a Python program
#
# FOLDER may include headers of the folders in ARROWS, and of no others. Each folder is one
# library that links those of its arrows; a folder can only name folders above it here, so
# there is no cycle. test/layers.test holds every #include against this list.
# MLIR: the folder is part of the compiler and links MLIR and LLVM.

# What both halves share.
lmc_layer(runtime/support)
lmc_layer(runtime/plan runtime/support)
lmc_layer(tools/support runtime/support)
lmc_layer(tools/report runtime/support)

# The runtime: links no LLVM.
lmc_layer(runtime/comm runtime/plan runtime/support)
lmc_layer(runtime/device runtime/comm runtime/plan runtime/support)
lmc_layer(runtime/data runtime/support)
lmc_layer(runtime/tokenizer runtime/support)
lmc_layer(runtime/checkpoint runtime/comm runtime/data runtime/plan runtime/support)
lmc_layer(runtime/monitor runtime/support)
lmc_layer(runtime/train runtime/checkpoint runtime/comm runtime/data runtime/device
          runtime/monitor runtime/plan runtime/support runtime/tokenizer)
lmc_program(tools/lmc-run runtime/comm runtime/device runtime/support runtime/train tools/support)
lmc_script(tools/lmc-wandb)
lmc_plugin(tools/parquet)
lmc_program(tools/lmc-data runtime/checkpoint runtime/data runtime/support runtime/tokenizer
            tools/parquet tools/support)

# The compiler's ground: planning problems, the TOML, costs. No MLIR.
lmc_layer(compiler/algorithms runtime/support)
lmc_layer(compiler/config runtime/plan runtime/support)
lmc_layer(compiler/cost compiler/config runtime/plan runtime/support)

# What the IR can say, and what kernels can be made of it.
lmc_layer(dialects/interfaces MLIR)
lmc_layer(dialects/lm MLIR dialects/interfaces)
lmc_layer(dialects/dist MLIR dialects/interfaces)
lmc_layer(dialects/plan MLIR dialects/interfaces dialects/lm)
lmc_layer(dialects/kern MLIR dialects/interfaces dialects/plan)
lmc_layer(compiler/kernels MLIR compiler/config compiler/cost dialects/kern dialects/lm)

# What is trained.
lmc_layer(models/families compiler/config)
lmc_layer(models/decoder MLIR compiler/config dialects/lm models/families runtime/plan)

# How the IR changes.
lmc_layer(passes/autodiff MLIR dialects/interfaces dialects/lm runtime/plan)
lmc_layer(passes/distribute MLIR compiler/cost dialects/dist dialects/lm runtime/plan)
lmc_layer(passes/buffers MLIR compiler/algorithms compiler/kernels dialects/dist
          dialects/interfaces dialects/kern dialects/lm dialects/plan)
lmc_layer(passes/memory MLIR compiler/algorithms compiler/cost dialects/dist dialects/interfaces
          dialects/lm)
lmc_layer(passes/fusion MLIR compiler/cost compiler/kernels dialects/interfaces dialects/kern
          dialects/lm passes/memory)
lmc_layer(passes/schedule MLIR dialects/kern dialects/lm)

# Code for a target, a folder each, and the plan file.
lmc_layer(compiler/targets MLIR compiler/config compiler/cost compiler/kernels dialects/kern
          dialects/plan passes/fusion runtime/support)
lmc_layer(compiler/emit MLIR compiler/config compiler/kernels dialects/interfaces dialects/kern
          dialects/plan models/decoder runtime/plan)

# What reads plans.
lmc_layer(compiler/analysis MLIR compiler/cost runtime/plan)
lmc_layer(compiler/report MLIR compiler/analysis compiler/cost compiler/kernels runtime/plan)
lmc_layer(compiler/extract MLIR compiler/cost compiler/kernels compiler/targets dialects/kern
          runtime/plan)

# What drives it all.
lmc_layer(compiler/phases MLIR compiler/config compiler/cost compiler/kernels compiler/report
          dialects/interfaces dialects/kern dialects/lm dialects/plan passes/autodiff passes/buffers
          passes/distribute passes/fusion passes/memory passes/schedule)
lmc_layer(compiler/search MLIR compiler/algorithms compiler/analysis compiler/cost compiler/emit
          compiler/phases dialects/interfaces dialects/lm passes/distribute passes/memory
          runtime/plan)
lmc_layer(compiler/driver MLIR compiler/config compiler/cost compiler/emit compiler/kernels
          compiler/phases compiler/search compiler/targets dialects/dist dialects/kern dialects/lm
          dialects/plan models/decoder passes/autodiff passes/buffers passes/distribute
          passes/fusion passes/memory passes/schedule runtime/plan)
lmc_program(tools/lmc MLIR compiler/config compiler/cost compiler/driver compiler/emit compiler/extract
            compiler/kernels compiler/report models/decoder models/families runtime/plan
            runtime/support tools/report tools/support)
lmc_program(tools/lmc-opt MLIR compiler/driver runtime/support)
lmc_program(tools/lmc-translate MLIR compiler/driver compiler/kernels runtime/support)
