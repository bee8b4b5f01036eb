# Shared libraries that travel with ours (in build/bundle, installed beside libopwright.so).
set(bundled_libraries ${onednn_library})
add_custom_target(bundle ALL DEPENDS ${bundled_libraries})

# The licenses of all that is in our binaries, as NOTICE names them: a folder with LICENSE, NOTICE and third-party/, of
# texts that the packages have which the build takes. tests/python/package/test_licenses.py compares NOTICE with the build.
set(licenses_dir ${PROJECT_BINARY_DIR}/licenses)
file(REMOVE_RECURSE ${licenses_dir})
foreach(file LICENSE NOTICE)
  configure_file(${PROJECT_SOURCE_DIR}/${file} ${licenses_dir}/${file} COPYONLY)
endforeach()

function(opwright_license name file)
  if(EXISTS "${file}")
    configure_file(${file} ${licenses_dir}/third-party/${name} COPYONLY)
  else()
    message(WARNING "The license of ${name} is not at '${file}': what is built must not be given to others")
  endif()
endfunction()

if(OPWRIGHT_ONEDNN)
  opwright_license(onednn ${dnnl_DIR}/../../../share/doc/onednn/LICENSE)
  opwright_license(onednn-third-party ${dnnl_DIR}/../../../share/doc/onednn/THIRD-PARTY-PROGRAMS)
endif()
foreach(package hwy protozero flatbuffers xxhash cli11)
  opwright_license(${package} /usr/share/doc/lib${package}-dev/copyright)
endforeach()
if(OPWRIGHT_PYTHON)
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c [[
from importlib.metadata import files
print(next(f.locate().resolve() for f in files("nanobind") if f.name == "LICENSE"))]]
    OUTPUT_VARIABLE nanobind_license OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  opwright_license(nanobind "${nanobind_license}")
  # It has its license where a source begins.
  file(GLOB robin_map ${nanobind_ROOT}/../ext/robin_map/include/tsl/robin_map.h)
  set(robin_map_license ${PROJECT_BINARY_DIR}/robin_map_license)
  file(REMOVE ${robin_map_license})
  if(robin_map)
    file(READ ${robin_map} robin_map_license_text)
    string(REGEX REPLACE "\\*/.*" "" robin_map_license_text "${robin_map_license_text}")
    string(REGEX REPLACE "(^|\n)(/\\*\\*| \\* ?)" "\\1" robin_map_license_text "${robin_map_license_text}")
    file(WRITE ${robin_map_license} "${robin_map_license_text}")
  endif()
  opwright_license(robin_map ${robin_map_license})
endif()
