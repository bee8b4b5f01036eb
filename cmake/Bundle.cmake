# Shared libraries that travel with ours (stripped copies in build/bundle, installed beside libopwright.so) and the
# licences of everything that is in our binaries.
set(bundle_dir ${PROJECT_BINARY_DIR}/bundle)
set(bundled_libraries)

function(opwright_bundle library)
  file(REAL_PATH ${library} file)
  get_filename_component(name ${file} NAME)
  string(REGEX MATCH "^[^.]+\\.so\\.[0-9]+" soname ${name})
  add_custom_command(OUTPUT ${bundle_dir}/${soname}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${bundle_dir}
    COMMAND ${CMAKE_STRIP} --strip-unneeded -o ${bundle_dir}/${soname} ${file}
    DEPENDS ${file} VERBATIM)
  list(APPEND bundled_libraries ${bundle_dir}/${soname})
  set(bundled_libraries ${bundled_libraries} PARENT_SCOPE)
endfunction()

get_target_property(dnnl_library DNNL::dnnl IMPORTED_LOCATION_RELEASE)
opwright_bundle(${dnnl_library})
if(OpenMP_gomp_LIBRARY)
  opwright_bundle(${OpenMP_gomp_LIBRARY})
endif()
add_custom_target(bundle ALL DEPENDS ${bundled_libraries})

set(bundled_licences)
function(opwright_licence name file)
  if(EXISTS ${file})
    configure_file(${file} ${PROJECT_BINARY_DIR}/licences/${name} COPYONLY)
    list(APPEND bundled_licences ${PROJECT_BINARY_DIR}/licences/${name})
    set(bundled_licences ${bundled_licences} PARENT_SCOPE)
  endif()
endfunction()

opwright_licence(onednn ${dnnl_DIR}/../../../share/doc/onednn/LICENSE)
opwright_licence(onednn-third-party ${dnnl_DIR}/../../../share/doc/onednn/THIRD-PARTY-PROGRAMS)
foreach(package libhwy-dev libgomp1 libprotozero-dev libflatbuffers-dev libxxhash-dev libcli11-dev)
  opwright_licence(${package} /usr/share/doc/${package}/copyright)
endforeach()
