# Shared libraries that travel with ours (in build/bundle, installed beside libopwright.so) and the licences of
# everything that is in our binaries.
set(bundled_libraries ${onednn_library})
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
foreach(package libhwy-dev libprotozero-dev libflatbuffers-dev libxxhash-dev libcli11-dev)
  opwright_licence(${package} /usr/share/doc/${package}/copyright)
endforeach()
