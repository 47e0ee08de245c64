# PCRE2 matches the regular expressions of pre-tokenizers; xxhash keys the cache of words.
find_path(PCRE2_INCLUDE pcre2.h REQUIRED)
find_library(PCRE2_LIBRARY pcre2-8 REQUIRED)
target_include_directories(${layer} PRIVATE ${PCRE2_INCLUDE})
target_link_libraries(${layer} PRIVATE ${PCRE2_LIBRARY})
