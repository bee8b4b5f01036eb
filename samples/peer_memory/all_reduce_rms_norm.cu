// y = rms_norm(the sum of x over the ranks) * scale, for rows of FP16. A block has a row.
//
// A word of 64 bits has two elements and the number of the call, so a word that has come says so
// itself. Words of a call lie in the half of the buffers that its number's last bit names. They
// replace those of the call before the last one, which nobody reads any more: a rank begins a call
// once its last call has ended, and that needed the words of all others. Each block counts its own
// calls, since a CUDA graph repeats the kernel with the same arguments.
#include <cuda_fp16.h>

typedef unsigned long long Word;

// The sum of the values that all threads of the block give.
__device__ float sum_of_block(float value) {
  __shared__ float sums[32];
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffff, value, step);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0;
  for (int warp = 0; warp < blockDim.x / 32; ++warp) sum += sums[warp];
  return sum;
}

// `buffers`, `counters` and `stop` are those of a PeerMemory. Buffers have the words as [2, ranks,
// rows, pairs], with at most `rows` rows. The dynamic shared memory has a float2 for each pair.
extern "C" __global__ void all_reduce_rms_norm(const __half2* x, const __half2* scale, int pairs,
                                               float epsilon, const Word* buffers,
                                               unsigned* counters, const Word* stop, int rank,
                                               int ranks, int rows, __half2* y) {
  extern __shared__ float2 row[];
  const int block = blockIdx.x;
  x += (Word)block * pairs, y += (Word)block * pairs;
  unsigned call = counters[block] + 1;
  if (call == 0) call = 2;  // 0 is what the buffers had at first
  const Word number = (Word)call << 32;
  // Where the words of a rank for this row begin.
  const auto begin = [&](int from) {
    return (((Word)(call & 1) * ranks + from) * rows + block) * pairs;
  };
  for (int i = threadIdx.x; i < pairs; i += blockDim.x) {
    const Word word = number | *(const unsigned*)(x + i);
    for (int other = 1; other < ranks; ++other)
      ((volatile Word*)buffers[other])[begin(rank) + i] = word;
  }
  __syncthreads();  // all have sent before one waits, and have read the counter
  if (threadIdx.x == 0) counters[block] = call;

  float squares = 0;
  for (int i = threadIdx.x; i < pairs; i += blockDim.x) {
    float2 sum = {0, 0};
    for (int from = 0; from < ranks; ++from) {  // all ranks add in this order
      float2 part = __half22float2(x[i]);
      if (from != rank) {
        const volatile Word* const place = (const volatile Word*)buffers[0] + begin(from) + i;
        Word word = *place;
        for (unsigned tries = 1; (unsigned)(word >> 32) != call; word = *place)
          if (tries++ % 4096 == 0 && *(const volatile Word*)stop != 0) break;  // a rank has ended
        const unsigned elements = (unsigned)word;
        part = __half22float2(*(const __half2*)&elements);
      }
      sum.x += part.x, sum.y += part.y;
    }
    row[i] = sum;
    squares += sum.x * sum.x + sum.y * sum.y;
  }
  const float factor = rsqrtf(sum_of_block(squares) / (2 * pairs) + epsilon);
  for (int i = threadIdx.x; i < pairs; i += blockDim.x) {
    const float2 weight = __half22float2(scale[i]);
    y[i] = __floats2half2_rn(row[i].x * factor * weight.x, row[i].y * factor * weight.y);
  }
}
