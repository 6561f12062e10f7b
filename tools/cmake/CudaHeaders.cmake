# SPDX-License-Identifier: Apache-2.0
# Finds cuda.h and cudaTypedefs.h. They come from the PyPI package
# nvidia-cuda-runtime (a build requirement of the wheel) or from a CUDA toolkit;
# no nvcc and no library is needed.
#
# Defines the interface target tessera::cuda_headers and CUDA_HEADERS_DIR.
if(NOT CUDA_HEADERS_DIR)
  find_package(Python3 COMPONENTS Interpreter QUIET)
  if(Python3_FOUND)
    execute_process(
      COMMAND ${Python3_EXECUTABLE} -c "
import pathlib, sys
for root in sys.path:
    for found in sorted(pathlib.Path(root or '.').glob('nvidia/*/include/cudaTypedefs.h')):
        if (found.parent / 'cuda.h').exists():
            print(found.parent, end=''); sys.exit()
"
      OUTPUT_VARIABLE _cuda_headers)
  endif()
  if(NOT _cuda_headers)
    find_path(_cuda_headers_system cudaTypedefs.h PATHS /usr/local/cuda/include /usr/include)
    if(_cuda_headers_system)
      set(_cuda_headers ${_cuda_headers_system})
    endif()
  endif()
  set(CUDA_HEADERS_DIR "${_cuda_headers}" CACHE PATH "Folder of cuda.h and cudaTypedefs.h")
endif()
if(NOT EXISTS "${CUDA_HEADERS_DIR}/cuda.h")
  message(FATAL_ERROR "cuda.h was not found. Install the package nvidia-cuda-runtime into the Python that CMake uses, or set CUDA_HEADERS_DIR.")
endif()
add_library(tessera_cuda_headers INTERFACE)
target_include_directories(tessera_cuda_headers SYSTEM INTERFACE ${CUDA_HEADERS_DIR})
add_library(tessera::cuda_headers ALIAS tessera_cuda_headers)
