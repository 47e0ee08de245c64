# The page is part of the program.
set(page ${here}/page/page.html ${here}/page/style.css ${here}/page/script.js)
lmc_embed_text(${made}/page.inc ${page})
list(APPEND sources ${made}/page.inc)
target_include_directories(${layer} PRIVATE ${made})
lmc_control_code(${layer})
