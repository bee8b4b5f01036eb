# Shared libraries that travel with ours: stripped copies in build/bundle, installed beside libopwright.so.
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
opwright_bundle(${HWY_LIBRARY})
if(OpenMP_gomp_LIBRARY)
  opwright_bundle(${OpenMP_gomp_LIBRARY})
endif()
file(GLOB bundled_licences ${dnnl_DIR}/../../../share/doc/onednn/LICENSE
  ${dnnl_DIR}/../../../share/doc/onednn/THIRD-PARTY-PROGRAMS)
add_custom_target(bundle ALL DEPENDS ${bundled_libraries})
