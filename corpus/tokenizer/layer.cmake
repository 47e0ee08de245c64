# Oniguruma matches the regular expressions of pre-tokenizers.
target_link_libraries(${layer} PRIVATE onig)
