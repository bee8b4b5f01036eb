# <root>/tensorrt: what build files for TensorRT look for, `include/NvInfer.h` and its neighbours and libraries of its
# link names. Each header leads to ours, so that no other of our headers can be taken for one of the sources' own; each
# library to libopwright.so. No links: wheels have none.
# What is linked to the libraries has Opwright's virtual tables. It needs them by a name of their own, so that neither a
# linker nor load_library takes it for what was compiled with TensorRT's headers, which needs libnvinfer.so.11.
set(tensorrt_dir ${PROJECT_BINARY_DIR}/tensorrt)
file(STRINGS ${PROJECT_SOURCE_DIR}/include/opwright/version.h tensorrt_major REGEX "^#define TRT_MAJOR_ENTERPRISE [0-9]+$")
string(REGEX MATCH "[0-9]+" tensorrt_major ${tensorrt_major})

file(GLOB headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/include/opwright
  ${PROJECT_SOURCE_DIR}/include/opwright/Nv*.h)
foreach(header ${headers})
  if(header STREQUAL "NvInferVersion.h")
    # Build files read the numbers from the text.
    configure_file(${PROJECT_SOURCE_DIR}/include/opwright/version.h ${tensorrt_dir}/include/${header} COPYONLY)
  else()
    file(CONFIGURE OUTPUT ${tensorrt_dir}/include/${header}
      CONTENT "#pragma once\n\n#include \"../../include/opwright/${header}\"\n")
  endif()
endforeach()
install(DIRECTORY ${tensorrt_dir}/include DESTINATION ${root}/tensorrt)

foreach(name nvinfer nvinfer_plugin nvonnxparser)
  add_library(tensorrt_${name} SHARED ${PROJECT_SOURCE_DIR}/src/tensorrt/${name}.cpp)
  target_include_directories(tensorrt_${name} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  # Nothing but a name is asked of libopwright.so, and it must be loaded all the same.
  # Installed as files rather than as targets, so nobody strips it later.
  target_link_options(tensorrt_${name} PRIVATE LINKER:--no-as-needed LINKER:--strip-all)
  target_link_libraries(tensorrt_${name} PRIVATE opwright_flags opwright ${CMAKE_DL_LIBS})
  set(needed lib${name}_opwright.so.${tensorrt_major})
  target_link_options(tensorrt_${name} PRIVATE LINKER:-soname=${needed}
    LINKER:--version-script=${PROJECT_SOURCE_DIR}/src/tensorrt/exports.map)
  set_target_properties(tensorrt_${name} PROPERTIES
    OUTPUT_NAME ${name} NO_SONAME ON LINK_DEPENDS ${PROJECT_SOURCE_DIR}/src/tensorrt/exports.map
    LIBRARY_OUTPUT_DIRECTORY ${tensorrt_dir}/lib
    INSTALL_RPATH $ORIGIN/../../lib BUILD_WITH_INSTALL_RPATH ON)
  # The last is the name by which programs load the library when they run.
  foreach(file lib${name}.so ${needed} lib${name}.so.${tensorrt_major})
    install(PROGRAMS $<TARGET_FILE:tensorrt_${name}> DESTINATION ${root}/tensorrt/lib RENAME ${file})
  endforeach()
  add_dependencies(bundle tensorrt_${name})
endforeach()
