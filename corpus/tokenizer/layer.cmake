# Oniguruma matches the regular expressions of pre-tokenizers. The C library comes first: Oniguruma also has functions
# with the names of its regcomp() and regexec(), which read another syntax.
target_link_libraries(${layer} PRIVATE c onig)
