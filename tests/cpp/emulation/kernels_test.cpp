// Kernels that the emulated NVRTC compiled and the emulated driver ran.

#include <cmath>
#include <numeric>

#include "emulation/emulated_gpu.h"

namespace opwright {
namespace {

using Kernels = EmulatedGpu;

constexpr char kAdd[] = R"(
extern "C" __global__ void __launch_bounds__(128) add(const float* __restrict__ a, const float* b, float* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = __ldg(a + i) + b[i];
})";

TEST_F(Kernels, AddsVectors) {
  CUfunction add = load(kAdd, "add");
  std::vector<float> a(1000), b(1000);
  for (int i = 0; i < 1000; ++i) a[i] = 0.5f * i, b[i] = 1000.0f - i;
  CUdeviceptr x = upload(a), y = upload(b), z = upload(std::vector<float>(1000));
  ASSERT_EQ(launch(add, 8, 128, 0, x, y, z, 1000), CUDA_SUCCESS);
  ASSERT_EQ(synchronize(), CUDA_SUCCESS);
  std::vector<float> sum = download<float>(z, 1000);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(sum[i], a[i] + b[i]) << i;
}

TEST_F(Kernels, TellTheirParametersAndLimits) {
  CUfunction add = load(kAdd, "add");
  size_t offset = 0, size = 0;
  ASSERT_EQ(CU(cuFuncGetParamInfo)(add, 3, &offset, &size), CUDA_SUCCESS);
  EXPECT_EQ(offset, 24u);
  EXPECT_EQ(size, 4u);
  EXPECT_EQ(CU(cuFuncGetParamInfo)(add, 4, &offset, &size), CUDA_ERROR_INVALID_VALUE);
  int threads = 0;
  CU(cuFuncGetAttribute)(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, add);
  EXPECT_EQ(threads, 128);
  CUdeviceptr null = 0;
  EXPECT_EQ(launch(add, 1, 129, 0, null, null, null, 0), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  EXPECT_EQ(launch(add, 1, 1025, 0, null, null, null, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(add, 0, 1, 0, null, null, null, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(add, 1, 1, 48 * 1024 + 1, null, null, null, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(CU(cuFuncSetAttribute)(add, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000),
            CUDA_SUCCESS);
  EXPECT_EQ(launch(add, 1, 1, 100000, null, null, null, 0), CUDA_SUCCESS);
}

constexpr char kReduce[] = R"(
extern __shared__ float dynamic[];
extern "C" __global__ void reduce(const float* in, float* out, int n) {
  __shared__ float fixed[256];
  int t = threadIdx.x;
  float sum = 0;
  for (int i = t; i < n; i += blockDim.x) sum += in[blockIdx.x * n + i];
  fixed[t] = sum;
  dynamic[blockDim.x - 1 - t] = sum;
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    __syncthreads();
    if (t < half) fixed[t] += fixed[t + half];
  }
  __syncthreads();
  if (t == 0) {
    float other = 0;
    for (int i = 0; i < blockDim.x; ++i) other += dynamic[i];
    out[2 * blockIdx.x] = fixed[0];
    out[2 * blockIdx.x + 1] = other;
  }
})";

TEST_F(Kernels, ReduceInSharedMemory) {
  CUfunction reduce = load(kReduce, "reduce");
  std::vector<float> values(3 * 1000);
  std::iota(values.begin(), values.end(), 0.0f);
  CUdeviceptr in = upload(values), out = upload(std::vector<float>(6));
  ASSERT_EQ(launch(reduce, 3, 256, 256 * sizeof(float), in, out, 1000), CUDA_SUCCESS);
  ASSERT_EQ(synchronize(), CUDA_SUCCESS);
  std::vector<float> sums = download<float>(out, 6);
  for (int block = 0; block < 3; ++block) {
    float expected = 1000.0f * 1000.0f * block + 999.0f * 500.0f;
    EXPECT_EQ(sums[2 * block], expected);
    EXPECT_EQ(sums[2 * block + 1], expected);
  }
}

TEST_F(Kernels, MissingBarriersShow) {
  std::string source = kReduce;
  for (size_t at; (at = source.find("__syncthreads();")) != source.npos;) {
    source.replace(at, 16, ";");
  }
  CUfunction reduce = load(source, "reduce");
  CUdeviceptr in = upload(std::vector<float>(1000, 1.0f)), out = upload(std::vector<float>(2));
  ASSERT_EQ(launch(reduce, 1, 256, 256 * sizeof(float), in, out, 1000), CUDA_SUCCESS);
  ASSERT_EQ(synchronize(), CUDA_SUCCESS);
  EXPECT_NE(download<float>(out, 2), std::vector<float>(2, 1000.0f));
}

TEST_F(Kernels, ThreadsThatWaitForEverFail) {
  CUfunction stuck = load(R"(extern "C" __global__ void stuck() {
    if (threadIdx.x == 0) __syncwarp(3); else __syncthreads();
  })",
                          "stuck");
  testing::internal::CaptureStderr();
  ASSERT_EQ(launch(stuck, 1, 64, 0), CUDA_SUCCESS);
  EXPECT_EQ(synchronize(), CUDA_ERROR_LAUNCH_TIMEOUT);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("stuck"), std::string::npos);
}

TEST_F(Kernels, ShuffleInWarps) {
  CUfunction shuffle = load(R"(
extern "C" __global__ void shuffle(int* out) {
  int t = threadIdx.x, sum = t;
  for (int bits = 16; bits; bits >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, bits);
  int* row = out + 6 * t;
  row[0] = sum;
  row[1] = __shfl_down_sync(0xffffffffu, t, 1);
  row[2] = __shfl_up_sync(0xffffffffu, t, 2);
  row[3] = __shfl_sync(0xffffffffu, t, 5, 8);
  row[4] = __ballot_sync(0xffffffffu, t % 3 == 0);
  row[5] = __reduce_max_sync(0xffffffffu, -t);
})",
                            "shuffle");
  CUdeviceptr out = upload(std::vector<int>(6 * 64));
  ASSERT_EQ(launch(shuffle, 1, 64, 0, out), CUDA_SUCCESS);
  ASSERT_EQ(synchronize(), CUDA_SUCCESS);
  std::vector<int> got = download<int>(out, 6 * 64);
  for (int t = 0; t < 64; ++t) {
    int lane = t % 32, warp = t - lane;
    unsigned ballot = 0;
    for (int i = 0; i < 32; ++i) ballot |= ((warp + i) % 3 == 0 ? 1u : 0u) << i;
    int expected[] = {31 * 16 + 32 * warp, lane < 31 ? t + 1 : t,    lane >= 2 ? t - 2 : t,
                      t / 8 * 8 + 5,       static_cast<int>(ballot), -warp};
    for (int i = 0; i < 6; ++i) EXPECT_EQ(got[6 * t + i], expected[i]) << t << " " << i;
  }
}

TEST_F(Kernels, ConvertHalfPrecisionByInlinePtx) {
  CUfunction convert = load(R"(
__device__ __forceinline__ float widen(unsigned short h) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
  return f;
}
extern "C" __global__ void convert(const float* in, unsigned short* half, unsigned short* brain, float* back) {
  int i = threadIdx.x;
  unsigned short h, b;
  asm volatile("{ cvt.rn.f16.f32 %0, %1;}\n" : "=h"(h) : "f"(in[i]));
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(b) : "f"(in[i]));
  half[i] = h;
  brain[i] = b;
  back[i] = widen(h);
})",
                            "convert");
  // Computed by NumPy and ml_dtypes.
  std::vector<float> in = {1.0f,           -2.5f,   65504.0f, 65520.0f, 6.1e-5f,
                           5.96046448e-8f, 2049.0f, 0.1f,     -INFINITY};
  std::vector<unsigned short> halves = {0x3c00, 0xc100, 0x7bff, 0x7c00, 0x03ff,
                                        0x0001, 0x6800, 0x2e66, 0xfc00};
  std::vector<unsigned short> brains = {0x3f80, 0xc020, 0x4780, 0x4780, 0x3880,
                                        0x3380, 0x4500, 0x3dcd, 0xff80};
  std::vector<float> backs = {1.0f,           -2.5f,   65504.0f,         INFINITY, 6.09755516e-05f,
                              5.96046448e-8f, 2048.0f, 0.0999755859375f, -INFINITY};
  CUdeviceptr x = upload(in), h = upload(halves), b = upload(brains), f = upload(in);
  ASSERT_EQ(launch(convert, 1, in.size(), 0, x, h, b, f), CUDA_SUCCESS);
  ASSERT_EQ(synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(download<unsigned short>(h, in.size()), halves);
  EXPECT_EQ(download<unsigned short>(b, in.size()), brains);
  EXPECT_EQ(download<float>(f, in.size()), backs);
}

/// One product of a warpgroup of a[64][16] and b[16][32], b across k: rows of a are 32 bytes of the
/// 128 of a row, those of b lie along n. Vectors of 16 bytes are exchanged by the address's bits 7
/// to 9.
constexpr char kWarpGroup[] = R"(
extern "C" __global__ void product(const unsigned short* a, const unsigned short* b, float* c) {
  extern __shared__ uint4 shared[];
  unsigned short* tile = (unsigned short*)shared;
  const int t = threadIdx.x;
  for (int i = t; i < 64 * 16; i += 128) {
    const int byte = i / 16 * 128 + 32 + i % 16 * 2;  // the second 16 of k
    tile[(byte ^ byte >> 3 & 0x70) / 2] = a[i];
  }
  for (int i = t; i < 16 * 32; i += 128) {
    const int byte = 8192 + i / 32 * 128 + i % 32 * 2;
    tile[(byte ^ byte >> 3 & 0x70) / 2] = b[i];
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const unsigned base = (unsigned)__cvta_generic_to_shared(shared);
  const unsigned long long kind = 1ull << 62 | 64ull << 32 | 1ull << 16;
  const unsigned long long x = kind | (base + 32) >> 4, y = kind | (base + 8192) >> 4;
  float d[16];
  for (int i = 0; i < 16; ++i) d[i] = i;
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, "
               "%11, %12, %13, %14, %15}, %16, %17, 1, 1, 1, 0, 1;"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
                 "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
               : "l"(x), "l"(y));
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (int i = 0; i < 16; ++i) {
    const int row = t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + t % 4 * 2 + i % 2;
    c[row * 32 + column] = d[i] - i;
  }
})";

TEST_F(Kernels, MultiplyByWarpGroups) {
  CUfunction product = load(kWarpGroup, "product");
  // Small integers and their bits in FP16.
  const auto value = [](int i, int seed) { return (i * 7 + seed) % 9 - 4; };
  const auto half = [](int v) {
    constexpr unsigned short kBits[] = {0, 0x3c00, 0x4000, 0x4200, 0x4400};
    return static_cast<unsigned short>(kBits[std::abs(v)] | (v < 0 ? 0x8000 : 0));
  };
  std::vector<unsigned short> a(64 * 16), b(16 * 32);
  for (int i = 0; i < 64 * 16; ++i) a[i] = half(value(i + i / 16, 1));
  for (int i = 0; i < 16 * 32; ++i) b[i] = half(value(i + i / 32, 5));
  CUdeviceptr x = upload(a), y = upload(b), z = upload(std::vector<float>(64 * 32));
  ASSERT_EQ(launch(product, 1, 128, 16384, x, y, z), CUDA_SUCCESS);
  ASSERT_EQ(synchronize(), CUDA_SUCCESS);
  const std::vector<float> got = download<float>(z, 64 * 32);
  for (int row = 0; row < 64; ++row)
    for (int column = 0; column < 32; ++column) {
      int sum = 0;
      for (int k = 0; k < 16; ++k)
        sum += value(row * 16 + k + row, 1) * value(k * 32 + column + k, 5);
      ASSERT_EQ(got[row * 32 + column], static_cast<float>(sum)) << row << " " << column;
    }
}

/// A warp hands numbers to another through barriers in shared memory, and each block of a cluster
/// reads what the other has.
constexpr char kCluster[] = R"(
extern "C" __global__ void __cluster_dims__(2, 1, 1) exchange(const float* in, float* out) {
  extern __shared__ uint4 shared[];
  float* numbers = (float*)shared;
  const unsigned base = (unsigned)__cvta_generic_to_shared(shared), full = base + 1024;
  const int t = threadIdx.x, lane = t % 32;
  if (t == 0)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(full), "r"(32) : "memory");
  __syncthreads();
  if (t < 32) {
    for (unsigned parity = 0; parity < 2; ++parity) {
      unsigned done = 0;
      while (!done)
        asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                     : "=r"(done) : "r"(full), "r"(parity) : "memory");
      out[blockIdx.x * 96 + parity * 32 + lane] = numbers[lane];
      asm volatile("bar.sync 1, 64;" ::: "memory");
    }
  } else {
    for (int step = 0; step < 2; ++step) {
      numbers[lane] = in[lane] + 100 * step + 1000 * blockIdx.x;
      asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(full) : "memory");
      asm volatile("bar.sync 1, 64;" ::: "memory");
    }
  }
  asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
  unsigned address;
  uint4 other;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(base), "r"(1 - (int)blockIdx.x));
  asm volatile("ld.shared::cluster.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(other.x), "=r"(other.y), "=r"(other.z), "=r"(other.w) : "r"(address) : "memory");
  if (t == 0) *(uint4*)(out + blockIdx.x * 96 + 64) = other;
  asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
})";

TEST_F(Kernels, WaitForPhasesAndReachTheirCluster) {
  CUfunction exchange = load(kCluster, "exchange");
  std::vector<float> in(32);
  std::iota(in.begin(), in.end(), 0.0f);
  CUdeviceptr x = upload(in), y = upload(std::vector<float>(2 * 96));
  EXPECT_EQ(launch(exchange, 3, 64, 2048, x, y), CUDA_ERROR_INVALID_VALUE) << "no whole clusters";
  ASSERT_EQ(launch(exchange, 2, 64, 2048, x, y), CUDA_SUCCESS);
  ASSERT_EQ(synchronize(), CUDA_SUCCESS);
  const std::vector<float> got = download<float>(y, 2 * 96);
  for (int block = 0; block < 2; ++block)
    for (int i = 0; i < 68; ++i) {
      const float expected = i < 64 ? in[i % 32] + 100 * (i / 32) + 1000 * block
                                    : in[i - 64] + 100 + 1000 * (1 - block);
      EXPECT_EQ(got[block * 96 + i], expected) << block << " " << i;
    }
}

/// Blocks of the largest cluster multiply for longer than a warp has its turn, each its own
/// numbers.
TEST_F(Kernels, MultiplyInEachBlockOfACluster) {
  constexpr int kBlocks = 16, kProducts = 100, kDepth = 8;
  CUfunction multiply = load(R"(
extern "C" __global__ void __cluster_dims__(16, 1, 1) multiply(float* out) {
  const unsigned a = __float_as_uint(blockIdx.x + 1.0f), b = __float_as_uint(1.0f);
  float c[4] = {};
  for (int i = 0; i < 100; ++i)
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
                 : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
                 : "r"(a), "r"(a), "r"(a), "r"(a), "r"(b), "r"(b), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
  __syncwarp();
  if (threadIdx.x == 0) out[blockIdx.x] = c[0];
})",
                             "multiply");
  CUdeviceptr sums = upload(std::vector<float>(kBlocks));
  EXPECT_NE(launch(multiply, kBlocks, 32, 0, sums), CUDA_SUCCESS) << "more than are portable";
  ASSERT_EQ(
      CU(cuFuncSetAttribute)(multiply, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1),
      CUDA_SUCCESS);
  ASSERT_EQ(launch(multiply, kBlocks, 32, 0, sums), CUDA_SUCCESS);
  ASSERT_EQ(synchronize(), CUDA_SUCCESS);
  const std::vector<float> got = download<float>(sums, kBlocks);
  for (int block = 0; block < kBlocks; ++block)
    EXPECT_EQ(got[block], static_cast<float>(kProducts * kDepth * (block + 1))) << block;
}

TEST_F(Kernels, InstantiateTemplates) {
  Compiled compiled = compile(R"(
template <typename T, int N> __global__ void fill(T* out, T value) {
  if (threadIdx.x < N) out[threadIdx.x] = value;
})",
                              {"--gpu-architecture=compute_90"}, "fill<double, 3>", true);
  ASSERT_EQ(compiled.result, 0) << compiled.log;
  EXPECT_EQ(compiled.lowered, "_Z4fillIdLi3EEvPT_S0_");
  CUfunction fill = load_image(compiled.image, compiled.lowered.c_str());
  CUdeviceptr out = upload(std::vector<double>(4));
  ASSERT_EQ(launch(fill, 1, 32, 0, out, 2.5), CUDA_SUCCESS);
  ASSERT_EQ(synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(download<double>(out, 4), (std::vector<double>{2.5, 2.5, 2.5, 0}));
}

TEST_F(Kernels, ShareNothingWithOthersOfTheirName) {
  for (int count : {2, 100}) {
    // The names are the same and what they name is not.
    std::string source = "struct Values { int of[" + std::to_string(count) + R"(]; };
template <typename T> __device__ void turn(const T& values, int* out, int count) {
  __shared__ T turned;
  turned.of[count - 1 - threadIdx.x] = values.of[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = turned.of[threadIdx.x];
}
extern "C" __global__ void reverse(Values values, int* out, int count) { turn(values, out, count); })";
    CUfunction reverse = load(source, "reverse");
    size_t offset = 0, size = 0;
    ASSERT_EQ(CU(cuFuncGetParamInfo)(reverse, 0, &offset, &size), CUDA_SUCCESS);
    ASSERT_EQ(size, count * sizeof(int));
    std::vector<int> values(100), expected(count);
    std::iota(values.begin(), values.end(), 0);
    for (int i = 0; i < count; ++i) expected[i] = count - 1 - i;
    CUdeviceptr out = upload(std::vector<int>(100));
    void* arguments[] = {values.data(), &out, &count};
    ASSERT_EQ(CU(cuLaunchKernel)(reverse, 1, 1, 1, count, 1, 1, 0, stream, arguments, nullptr),
              CUDA_SUCCESS);
    ASSERT_EQ(synchronize(), CUDA_SUCCESS);
    EXPECT_EQ(download<int>(out, count), expected);
  }
}

TEST_F(Kernels, AreFoundInNamespaces) {
  Compiled compiled = compile(R"(
namespace outer { namespace { __device__ int one() { return 1; } }
namespace inner { struct S { int x; };
__global__ void fill(int* out) { out[0] = S{one()}.x; } } })",
                              {}, "outer::inner::fill");
  ASSERT_EQ(compiled.result, 0) << compiled.log;
  EXPECT_EQ(compiled.lowered, "_ZN5outer5inner4fillEPi");
  CUdeviceptr out = upload(std::vector<int>(1));
  ASSERT_EQ(launch(load_image(compiled.image, compiled.lowered.c_str()), 1, 1, 0, out),
            CUDA_SUCCESS);
  ASSERT_EQ(synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(download<int>(out, 1), std::vector<int>{1});
}

TEST_F(Kernels, IncludeShortFloatsAndNothingOfTheHost) {
  CUfunction add = load(R"(
#include <cuda_fp16.h>
#include "cuda_bf16.h"
extern "C" __global__ void add(__half* a, __nv_bfloat16* b) {
  a[0] = __hadd(a[0], a[1]);
  b[0] = b[0] * b[1];
})",
                        "add");
  // 1.5 + 0.25 and 3 * -0.5.
  CUdeviceptr a = upload(std::vector<unsigned short>{0x3e00, 0x3400});
  CUdeviceptr b = upload(std::vector<unsigned short>{0x4040, 0xbf00});
  ASSERT_EQ(launch(add, 1, 1, 0, a, b), CUDA_SUCCESS);
  ASSERT_EQ(synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(download<unsigned short>(a, 1)[0], 0x3f00);
  EXPECT_EQ(download<unsigned short>(b, 1)[0], 0xbfc0);
  EXPECT_EQ(compile("#include <cstdint>\n").result, 6);
}

TEST_F(Kernels, CompileErrorsComeWithTheLog) {
  Compiled compiled = compile("\nextern \"C\" __global__ void broken() { undeclared = 1; }");
  EXPECT_EQ(compiled.result, 6);
  EXPECT_NE(compiled.log.find("test.cu:2"), std::string::npos) << compiled.log;
  EXPECT_NE(compiled.log.find("undeclared"), std::string::npos) << compiled.log;
  EXPECT_EQ(compile(kAdd, {"--gpu-architecture=sm_13"}).result, 5);
}

TEST_F(Kernels, OfAnotherArchitectureAreRefused) {
  CUmodule module;
  EXPECT_EQ(CU(cuModuleLoadData)(&module, compile(kAdd, {"-arch=sm_80"}).image.data()),
            CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(CU(cuModuleLoadData)(&module,
                                 compile(kAdd, {"-arch=compute_100"}, nullptr, true).image.data()),
            CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(CU(cuModuleLoadData)(&module,
                                 compile(kAdd, {"-arch=compute_80"}, nullptr, true).image.data()),
            CUDA_SUCCESS);
  EXPECT_EQ(CU(cuModuleLoadData)(&module, "no kernel at all"), CUDA_ERROR_INVALID_IMAGE);
}

}  // namespace
}  // namespace opwright
