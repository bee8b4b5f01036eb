// Declarations with which clang checks src/backend/gpu/device without CUDA's headers
// (tools/lint.py).
#pragma once

#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(n) __attribute__((aligned(n)))
#include <__clang_cuda_builtin_vars.h>

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
__device__ uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w);
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
__device__ float2 make_float2(float x, float y);
__device__ float4 make_float4(float x, float y, float z, float w);
__device__ float __uint_as_float(unsigned x);
__device__ unsigned __float_as_uint(float x);
__device__ float fabsf(float x);
__device__ double fabs(double x);
__device__ double ceil(double x);
__device__ double floor(double x);
__device__ double round(double x);
__device__ double sqrt(double x);
__device__ double pow(double x, double y);
__device__ double rint(double x);
__device__ double trunc(double x);
__device__ double fmod(double x, double y);
__device__ float fminf(float x, float y);
__device__ float fmaxf(float x, float y);
__device__ float fmaf(float x, float y, float z);
__device__ float tanhf(float x);
__device__ float expf(float x);
__device__ float expm1f(float x);
__device__ float log1pf(float x);
__device__ float __fadd_rn(float x, float y);
__device__ float __fmul_rn(float x, float y);
__device__ float __fsub_rn(float x, float y);
__device__ float __fdiv_rn(float x, float y);
__device__ unsigned __umulhi(unsigned x, unsigned y);
__device__ float logf(float x);
__device__ float cosf(float x);
__device__ float sinf(float x);
__device__ float sqrtf(float x);
__device__ float powf(float x, float y);
__device__ float rintf(float x);
__device__ float truncf(float x);
__device__ float floorf(float x);
__device__ float fmodf(float x, float y);
__device__ float copysignf(float x, float y);
__device__ float __fsqrt_rn(float x);
__device__ unsigned __byte_perm(unsigned x, unsigned y, unsigned select);
__device__ void __syncthreads();
__device__ int __syncthreads_count(int predicate);
__device__ int __syncthreads_or(int predicate);
__device__ void __syncwarp(unsigned mask = 0xffffffffu);
__device__ void __threadfence();
__device__ void __nanosleep(unsigned nanoseconds);
__device__ unsigned __ballot_sync(unsigned mask, int predicate);
__device__ int __popc(unsigned x);
__device__ int __ffs(int x);
__device__ int __any_sync(unsigned mask, int predicate);
template <class T>
__device__ T __shfl_sync(unsigned mask, T value, int lane);
template <class T>
__device__ T __shfl_up_sync(unsigned mask, T value, int distance);
template <class T>
__device__ T __shfl_xor_sync(unsigned mask, T value, int bits);
template <class T>
__device__ T __ldcg(const T* pointer);
template <class T>
__device__ T atomicAdd(T* pointer, T value);
template <class T>
__device__ T atomicExch(T* pointer, T value);
__device__ __SIZE_TYPE__ __cvta_generic_to_shared(const void* pointer);

typedef int Index;
typedef unsigned UIndex;
