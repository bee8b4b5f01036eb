# <root>/lib: the binary interface of TensorRT 10 and 11. libopwright_tensorrt.so has the tables; one library for each of
# TensorRT's, under a name of its own, has the entry points. `python -m opwright tensorrt provide` makes TensorRT's names.
file(GLOB abi_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/tensorrt/abi/*.cpp)
add_library(opwright_tensorrt SHARED ${abi_sources})
target_include_directories(opwright_tensorrt PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(opwright_tensorrt PRIVATE opwright_flags opwright ${CMAKE_DL_LIBS})
target_link_options(opwright_tensorrt PRIVATE
  LINKER:--version-script=${PROJECT_SOURCE_DIR}/src/tensorrt/abi/exports.map)
if(OPWRIGHT_SANITIZE)
  # Functions take the place of methods, on both sides.
  target_compile_options(opwright_tensorrt PRIVATE -O0 -fno-sanitize=function ${uncounted_options})
endif()
set(abi_libraries opwright_tensorrt)
foreach(major 10 11)
  foreach(name nvinfer nvinfer_plugin nvonnxparser)
    set(target opwright_${name}_${major})
    add_library(${target} SHARED ${PROJECT_SOURCE_DIR}/src/tensorrt/drop_in/${name}.cpp)
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
    target_compile_definitions(${target} PRIVATE OPWRIGHT_TENSORRT_MAJOR=${major})
    target_link_libraries(${target} PRIVATE opwright_flags opwright_tensorrt)
    set_target_properties(${target} PROPERTIES NO_SONAME ON)
    target_link_options(${target} PRIVATE LINKER:-soname=lib${name}.so.${major}
      LINKER:--version-script=${PROJECT_SOURCE_DIR}/src/tensorrt/drop_in/exports.map)
    list(APPEND abi_libraries ${target})
  endforeach()
endforeach()
foreach(library ${abi_libraries})
  set_target_properties(${library} PROPERTIES LIBRARY_OUTPUT_DIRECTORY $<TARGET_FILE_DIR:opwright>
    INSTALL_RPATH $ORIGIN BUILD_WITH_INSTALL_RPATH ON LINK_DEPENDS_NO_SHARED ON)
  add_dependencies(bundle ${library})
endforeach()
install(TARGETS ${abi_libraries} LIBRARY DESTINATION ${root}/lib)
