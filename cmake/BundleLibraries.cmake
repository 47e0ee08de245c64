# Puts the libraries of the installed programs, and the notices of their licences, below the prefix.
# `cmake --install` runs this script (cmake/LmcInstall.cmake) with
#
#   PROGRAMS    the programs in the build folder; those that are not installed are left out
#   LIBRARIES   where the libraries go, below the prefix
#   SYSTEM      the folders of the machine's own libraries, as in a RPATH
#   PATCHELF    the program patchelf
#   LLVM        the major version of LLVM
#
# A library that belongs to no package, or to one without a notice, is an error.
cmake_policy(VERSION 3.22)

set(prefix "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}")
set(folder "${prefix}/${LIBRARIES}")
if(NOT PATCHELF)
  message(FATAL_ERROR "lmc: patchelf, which makes libraries relocatable, is missing (./dev setup installs it)")
endif()

# What every Linux with glibc has: glibc itself, and GCC's C++ library, of which a process must have one
# only, the newest that any of its libraries was built with (as the rules of manylinux wheels have it).
set(system "^ld-linux" "^lib(c|m|dl|rt|pthread|resolv|util|stdc\\+\\+|gcc_s)\\.so")
# Gloo's libraries lie where only Gloo finds them, behind the machine's own. It links libibverbs for
# InfiniBand, which lmc does not use it for; but NCCL opens this library in the same process, and needs
# the machine's, which knows the machine's drivers.
set(fallback "^lib(hiredis|ibverbs|nl-3|nl-route-3)\\.so")

set(installed)
set(names)
foreach(program ${PROGRAMS})
  get_filename_component(name "${program}" NAME)
  if(EXISTS "${prefix}/bin/${name}")
    list(APPEND installed "${program}")
    list(APPEND names "${name}")
  endif()
endforeach()
if(NOT installed)
  return()
endif()

file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${installed} RESOLVED_DEPENDENCIES_VAR libraries
     PRE_EXCLUDE_REGEXES ${system})
function(patch)
  execute_process(COMMAND "${PATCHELF}" ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()
set(places) # of the libraries, as packages may name them: /lib may be a link to /usr/lib
foreach(library ${libraries})
  get_filename_component(name "${library}" NAME)
  file(REAL_PATH "${library}" real)
  string(REGEX REPLACE "^/usr/" "/" short "${real}")
  list(APPEND places "${real}" "${short}")
  set(into "${folder}")
  if(name MATCHES "${fallback}")
    set(into "${folder}/fallback")
  endif()
  file(MAKE_DIRECTORY "${into}")
  file(COPY_FILE "${real}" "${into}/${name}")
  file(CHMOD "${into}/${name}" PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
  if(name MATCHES "^libgloo\\.")
    patch(--set-rpath "${SYSTEM}:$ORIGIN/fallback" "${into}/${name}")
  elseif(name MATCHES "${fallback}")
    patch(--set-rpath "$ORIGIN" "${into}/${name}")
  else() # then the RPATH of the program holds
    patch(--remove-rpath "${into}/${name}")
  endif()
endforeach()

# The packages: of the libraries, and of the headers and archives that are part of the programs.
execute_process(COMMAND dpkg-query --search ${places} OUTPUT_VARIABLE owners ERROR_QUIET)
string(REGEX MATCHALL "[^\n]+" owners "${owners}")
set(packages libflatbuffers-dev nlohmann-json3-dev libcli11-dev)
if("lmc" IN_LIST names)
  list(APPEND packages liblld-${LLVM}-dev libtomlplusplus-dev)
endif()
set(table "")
foreach(library ${libraries})
  get_filename_component(name "${library}" NAME)
  file(REAL_PATH "${library}" real)
  string(REGEX REPLACE "^/usr/" "/" short "${real}")
  set(package)
  foreach(owner ${owners})
    # "libz3-4:amd64: /usr/lib/x86_64-linux-gnu/libz3.so.4"
    if(owner MATCHES "^([^:, ]+)[^/]*: (.*)$")
      if(CMAKE_MATCH_2 STREQUAL real OR CMAKE_MATCH_2 STREQUAL short)
        set(package "${CMAKE_MATCH_1}")
      endif()
    endif()
  endforeach()
  if(NOT package)
    message(FATAL_ERROR "lmc: ${library} belongs to no package, so that the notice of its licence is not known")
  endif()
  list(APPEND packages "${package}")
  string(APPEND table "${name}: ${package}\n")
endforeach()
list(REMOVE_DUPLICATES packages)

set(licenses "${prefix}/share/doc/lmc/licenses")
file(REMOVE_RECURSE "${licenses}")
file(MAKE_DIRECTORY "${licenses}/common-licenses")
set(common)
foreach(package ${packages})
  set(notice "/usr/share/doc/${package}/copyright")
  if(NOT EXISTS "${notice}")
    message(FATAL_ERROR "lmc: ${package} has no ${notice}, and its notice must go with lmc")
  endif()
  file(REAL_PATH "${notice}" notice)
  file(COPY_FILE "${notice}" "${licenses}/${package}.txt")
  # Notices of Debian name long licences by their place.
  file(READ "${notice}" text)
  string(REGEX MATCHALL "/usr/share/common-licenses/[A-Za-z0-9.-]*[A-Za-z0-9]" named "${text}")
  list(APPEND common ${named})
endforeach()
list(REMOVE_DUPLICATES common)
foreach(license ${common})
  get_filename_component(name "${license}" NAME)
  if(EXISTS "${license}")
    file(REAL_PATH "${license}" license)
    file(COPY_FILE "${license}" "${licenses}/common-licenses/${name}")
  endif()
endforeach()
execute_process(COMMAND dpkg-query --show --showformat "\${Package} \${Version}\n" ${packages}
                OUTPUT_VARIABLE versions COMMAND_ERROR_IS_FATAL ANY)
list(JOIN names ", " names)
file(WRITE "${licenses}/NOTICES.txt"
"${names} come with the libraries of other projects. PACKAGE.txt in this folder has the copyright and the
licences of each, as its Debian package has them; common-licenses/ has the texts that they name.

Libraries, and the package of each:

${table}
Packages and their versions, also of those that are part of the programs:

${versions}")
