# The folders of the product and the arrows between them, ground first.
#
#   lmc_layer(FOLDER [MLIR] ARROWS...)    the library of a folder
#   lmc_program(FOLDER [MLIR] [LIBRARY] ARROWS...)  a program; LIBRARY: all but its main() is a
#                                         library too, for tests
#   lmc_plugin(FOLDER ARROWS...)          a shared library that a program opens on demand
#   lmc_script(FOLDER)                    a Python program
#
# FOLDER may include headers of the folders in ARROWS, and of no others. Each folder is one
# library that links those of its arrows; a folder can only name folders above it here, so
# there is no cycle. test/layers.test holds every #include against this list.
# MLIR: the folder is part of the compiler and links MLIR and LLVM.

# What both halves share. No MLIR.
lmc_layer(ground/support)
lmc_layer(ground/plan ground/support)
lmc_layer(ground/settings ground/plan ground/support)
lmc_layer(ground/config ground/plan ground/settings ground/support)

# Text to token ids and back.
lmc_layer(corpus/tokenizer ground/support)

# The runtime: links no LLVM.
lmc_layer(runtime/comm ground/plan ground/support)
lmc_layer(runtime/device runtime/comm ground/plan ground/support)
lmc_layer(runtime/data ground/support)
lmc_layer(runtime/checkpoint runtime/comm runtime/data ground/plan ground/support)
lmc_layer(runtime/monitor ground/config ground/support)
lmc_layer(runtime/settings runtime/checkpoint runtime/comm runtime/data ground/config ground/plan
          ground/settings ground/support)
lmc_layer(runtime/folder runtime/checkpoint runtime/comm runtime/device runtime/settings ground/plan
          ground/support)
lmc_layer(runtime/step runtime/checkpoint runtime/comm runtime/data runtime/device runtime/folder
          runtime/monitor runtime/settings ground/plan ground/support)
lmc_layer(runtime/watch runtime/comm runtime/device runtime/folder runtime/monitor runtime/settings
          runtime/step ground/plan ground/support)
lmc_layer(runtime/text corpus/tokenizer runtime/checkpoint runtime/comm runtime/data runtime/device
          runtime/folder runtime/monitor runtime/step ground/plan ground/support)
lmc_layer(runtime/loop runtime/checkpoint runtime/comm runtime/data runtime/folder runtime/monitor
          runtime/settings runtime/step runtime/text runtime/watch ground/plan ground/support)

# The compiler's planning problems and costs. No MLIR.
lmc_layer(compiler/algorithms ground/support)
lmc_layer(compiler/cost ground/config ground/plan ground/support)

# What the IR can say, and what kernels can be made of it.
lmc_layer(dialects/interfaces MLIR)
lmc_layer(dialects/lm MLIR dialects/interfaces)
lmc_layer(dialects/dist MLIR dialects/interfaces)
lmc_layer(dialects/plan MLIR dialects/interfaces dialects/lm)
lmc_layer(dialects/kern MLIR dialects/interfaces dialects/plan)
lmc_layer(compiler/kernels MLIR ground/config compiler/cost dialects/kern dialects/lm)

# What is trained.
lmc_layer(models/families ground/config)
lmc_layer(models/decoder MLIR ground/config dialects/lm models/families ground/plan)

# How the IR changes.
lmc_layer(passes/autodiff MLIR dialects/interfaces dialects/lm ground/plan)
lmc_layer(passes/distribute MLIR compiler/cost dialects/dist dialects/lm ground/plan)
lmc_layer(passes/buffers MLIR compiler/algorithms compiler/kernels dialects/dist
          dialects/interfaces dialects/kern dialects/lm dialects/plan)
lmc_layer(passes/memory MLIR compiler/algorithms compiler/cost dialects/dist dialects/interfaces
          dialects/lm)
lmc_layer(passes/fusion MLIR compiler/cost compiler/kernels dialects/interfaces dialects/kern
          dialects/lm passes/memory)
lmc_layer(passes/schedule MLIR dialects/kern dialects/lm)

# Code for a target, a folder each, and the plan file.
lmc_layer(compiler/targets MLIR ground/config compiler/cost compiler/kernels dialects/kern
          dialects/plan passes/fusion ground/plan ground/support)
lmc_layer(compiler/emit MLIR ground/config compiler/kernels dialects/interfaces dialects/kern
          dialects/plan models/decoder ground/plan)

# What reads plans.
lmc_layer(compiler/analysis MLIR compiler/cost ground/plan)
lmc_layer(compiler/report MLIR compiler/analysis compiler/cost compiler/kernels ground/plan)
lmc_layer(compiler/extract MLIR compiler/cost compiler/kernels compiler/targets dialects/kern
          ground/plan)

# What drives it all.
lmc_layer(compiler/phases MLIR ground/config compiler/cost compiler/kernels compiler/report
          dialects/interfaces dialects/kern dialects/lm dialects/plan passes/autodiff passes/buffers
          passes/distribute passes/fusion passes/memory passes/schedule)
lmc_layer(compiler/search MLIR compiler/algorithms compiler/analysis compiler/cost compiler/emit
          compiler/phases dialects/interfaces dialects/lm passes/distribute passes/memory
          ground/plan)
lmc_layer(compiler/driver MLIR ground/config compiler/cost compiler/emit compiler/kernels
          compiler/phases compiler/search compiler/targets dialects/dist dialects/kern dialects/lm
          dialects/plan models/decoder passes/autodiff passes/buffers passes/distribute
          passes/fusion passes/memory passes/schedule ground/plan)

# The programs.
lmc_layer(tools/support ground/support)
lmc_layer(tools/report ground/support)
lmc_program(tools/lmc-run LIBRARY ground/config runtime/checkpoint runtime/comm runtime/device runtime/folder
            runtime/loop runtime/monitor runtime/settings runtime/step runtime/watch tools/support
            ground/plan ground/support)
lmc_script(tools/lmc-wandb)
lmc_plugin(tools/parquet)
lmc_program(tools/lmc-data LIBRARY runtime/checkpoint runtime/data ground/support corpus/tokenizer
            tools/parquet tools/support)
lmc_program(tools/lmc MLIR ground/config compiler/cost compiler/driver compiler/emit compiler/extract
            compiler/kernels compiler/report models/decoder models/families ground/plan
            ground/support tools/report tools/support)
lmc_program(tools/lmc-opt MLIR compiler/driver ground/support)
lmc_program(tools/lmc-translate MLIR compiler/driver compiler/kernels ground/support)
