# Embeds the parts of extracted programs that are fixed text.
file(GLOB texts CONFIGURE_DEPENDS ${here}/text/*.cu ${here}/text/*/*.cu)
lmc_embed_text(${made}/extract_texts.inc ${texts} ${CMAKE_SOURCE_DIR}/runtime/step/NormalStream.cpp)
list(APPEND sources ${made}/extract_texts.inc)
target_include_directories(${layer} PRIVATE ${made})
