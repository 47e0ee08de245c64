# Oniguruma matches the regular expressions of pre-tokenizers. The C library comes before it: Oniguruma also has
# functions with the names of its regcomp() and regexec(), which read another syntax.
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libc.so.6 OUTPUT_VARIABLE libc
                OUTPUT_STRIP_TRAILING_WHITESPACE)
target_link_libraries(${layer} PRIVATE ${libc} onig)
