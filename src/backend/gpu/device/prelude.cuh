// Included by every kernel: stored and computed types, and replacements for headers that NVRTC
// lacks.
// Expects the types Index and UIndex.
#pragma once

struct Half {
  unsigned short bits;
};
struct BFloat16 {
  unsigned short bits;
};
struct Fp8 {
  unsigned char bits;
};
struct Bool {
  unsigned char value;
};

// load() converts stored elements to values for computing; store() converts back.
__device__ inline float load(float x) { return x; }
__device__ inline signed char load(signed char x) { return x; }
__device__ inline unsigned char load(unsigned char x) { return x; }
__device__ inline int load(int x) { return x; }
__device__ inline long long load(long long x) { return x; }
__device__ inline bool load(Bool x) { return x.value != 0; }
__device__ inline float load(BFloat16 x) { return __uint_as_float((unsigned)x.bits << 16); }
__device__ inline float load(Fp8 x) {
#if __CUDA_ARCH__ >= 890
  unsigned pair;
  float y;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"((unsigned short)x.bits));
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"((unsigned short)pair));
  return y;
#else
  const unsigned magnitude = x.bits & 0x7fu, sign = (x.bits & 0x80u) << 24;
  if (magnitude == 0x7f) return __uint_as_float(sign | 0x7fc00000u);
  const float y = magnitude < 8 ? (float)magnitude * 0.001953125f
                                : __uint_as_float((magnitude << 20) + 0x3c000000u);
  return __uint_as_float(sign | __float_as_uint(y));
#endif
}

template <class T>
constexpr bool kIsFloat = false;
template <>
constexpr bool kIsFloat<float> = true;
// The type in which integers wrap around, which C++ defines only for unsigned ones.
template <class T>
struct Wrapping {
  typedef unsigned Type;
};
template <>
struct Wrapping<long long> {
  typedef unsigned long long Type;
};
template <>
struct Wrapping<float> {
  typedef float Type;
};

template <class T>
struct Storing {
  __device__ static T of(T x) { return x; }
};
template <>
struct Storing<Bool> {
  __device__ static Bool of(bool x) { return Bool{(unsigned char)x}; }
};
// Floating-point types round to nearest even.
template <>
struct Storing<BFloat16> {
  __device__ static BFloat16 of(float x) {
#if __CUDA_ARCH__ >= 800
    BFloat16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
#else
    const unsigned bits = __float_as_uint(x);
    return BFloat16{
        (unsigned short)(x != x ? bits >> 16 | 0x40u : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
#endif
  }
};
template <>
struct Storing<Fp8> {
  __device__ static Fp8 of(float x) {
#if __CUDA_ARCH__ >= 890
    unsigned short pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
    return Fp8{(unsigned char)pair};
#else
    const unsigned bits = __float_as_uint(x), magnitude = bits & 0x7fffffffu;
    const unsigned sign = bits >> 24 & 0x80u;
    if (magnitude > 0x7f800000u) return Fp8{(unsigned char)(sign | 0x7fu)};
    if (magnitude >= 0x43e00000u) return Fp8{(unsigned char)(sign | 0x7eu)};  // saturates
    if (magnitude < 0x3c800000u) {
      // The result is subnormal, a multiple of 2^-9. That is the last bit of 2^14 in FP32, so the
      // sum rounds to it.
      const float sum = __uint_as_float(magnitude) + 16384.0f;
      return Fp8{(unsigned char)(sign | (__float_as_uint(sum) - 0x46800000u))};
    }
    const unsigned odd = magnitude >> 20 & 1u;
    return Fp8{(unsigned char)(sign | ((magnitude - 0x3c000000u + 0x7ffffu + odd) >> 20))};
#endif
  }
};
__device__ inline float load(Half x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
template <>
struct Storing<Half> {
  __device__ static Half of(float x) {
    Half y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
  }
};
template <class T, class Value>
__device__ inline T store(Value x) {
  return Storing<T>::of(x);
}

// Rounds two numbers to 16 bits and packs them into a word.
template <class T>
__device__ unsigned pair(float low, float high);
template <>
__device__ inline unsigned pair<Half>(float low, float high) {
  unsigned both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}
template <>
__device__ inline unsigned pair<BFloat16>(float low, float high) {
  unsigned both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

// Conversions between values. From float they round toward zero and saturate, and NaN becomes 0.
// Integers wrap around.
template <class To>
__device__ inline To saturate(float x, float low, float beyond, To lowest, To highest) {
  return x >= beyond ? highest : x <= low ? lowest : x == x ? (To)x : (To)0;
}
template <class To, class From>
struct Converting {
  __device__ static To of(From x) { return (To)x; }
};
template <>
struct Converting<signed char, float> {
  __device__ static signed char of(float x) {
    return saturate<signed char>(x, -128.0f, 128.0f, -128, 127);
  }
};
template <>
struct Converting<unsigned char, float> {
  __device__ static unsigned char of(float x) {
    return saturate<unsigned char>(x, 0.0f, 256.0f, 0, 255);
  }
};
template <>
struct Converting<int, float> {
  __device__ static int of(float x) {
    return saturate<int>(x, -2147483648.0f, 2147483648.0f, -2147483647 - 1, 2147483647);
  }
};
template <>
struct Converting<long long, float> {
  __device__ static long long of(float x) {
    return saturate<long long>(x, -9223372036854775808.0f, 9223372036854775808.0f,
                               -9223372036854775807LL - 1, 9223372036854775807LL);
  }
};
template <class To, class From>
__device__ inline To convert(From x) {
  return Converting<To, From>::of(x);
}

// The largest power of two that divides a size, at most 16.
__device__ constexpr int alignment_of(int size) { return (size & -size) < 16 ? size & -size : 16; }
// Neighbours that are loaded and stored at once, in as few accesses as their alignment allows.
template <class T, int n>
struct alignas(alignment_of(sizeof(T) * n)) Pack {
  T at[n];
};
template <class T, int n>
__device__ inline bool is_aligned(const T* pointer) {
  return (unsigned long long)pointer % alignof(Pack<T, n>) == 0;
}

// Waits until earlier kernels are done, since a kernel may begin while they end.
__device__ inline void wait_for_kernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Lets the next kernel begin, once all blocks have called this.
__device__ inline void begin_next_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Returns the same pointer in a way that hides from the compiler what it knows of the memory.
template <class T>
__device__ inline const T* read_anew(const T* pointer) {
  const T* same;
  asm volatile("mov.b64 %0, %1;" : "=l"(same) : "l"(pointer) : "memory");
  return same;
}

// Does the same to the pointer of an input whose bit is set in `written`: earlier kernels may write
// it.
template <int written, int input, class T>
__device__ inline void read_anew_if_written(const T*& pointer) {
  if constexpr ((written >> input & 1) != 0) pointer = read_anew(pointer);
}

__device__ inline Index first_index() {
  return (Index)blockIdx.x * (Index)blockDim.x + (Index)threadIdx.x;
}
__device__ inline Index index_step() { return (Index)gridDim.x * (Index)blockDim.x; }
