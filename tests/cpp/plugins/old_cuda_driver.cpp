// Stands for NVIDIA's driver of CUDA 11.4, which has not all functions that are needed.

enum cudaError_enum { CUDA_SUCCESS = 0 };  // as cuda.h declares it

extern "C" cudaError_enum cuDriverGetVersion(int* version) {
  *version = 11040;
  return CUDA_SUCCESS;
}
