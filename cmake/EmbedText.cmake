# Text files as C++: lmc_embed_text(OUT FILES...) makes OUT, a list of
#   {"stem", R"lmc(text)lmc"},
# to be included between the braces of an array. Run as a script, it writes that list.
if(CMAKE_SCRIPT_MODE_FILE)
  string(REPLACE "|" ";" files "${FILES}")
  set(list "")
  foreach(file ${files})
    get_filename_component(stem "${file}" NAME_WLE)
    file(READ "${file}" text)
    string(APPEND list "{\"${stem}\", R\"lmc(${text})lmc\"},\n")
  endforeach()
  file(WRITE "${OUT}" "${list}")
  return()
endif()

set(LMC_EMBED_TEXT ${CMAKE_CURRENT_LIST_FILE})
function(lmc_embed_text out)
  list(JOIN ARGN "|" files)
  add_custom_command(OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DOUT=${out} "-DFILES=${files}" -P ${LMC_EMBED_TEXT}
    DEPENDS ${ARGN} ${LMC_EMBED_TEXT} VERBATIM)
endfunction()
