// Determinants: the product of the diagonal after Gaussian elimination with row exchanges, in
// double precision.
//
// The kernel is a template over a struct that the host writes:
//   Element   the type in memory
//   kThreads  threads of a block
// Expects prelude.cuh.
#pragma once

// There are `count` matrices of n rows. A block eliminates in `room` numbers of scratch.
template <class Config>
struct DeterminantArguments {
  const typename Config::Element* x;
  typename Config::Element* y;
  double* scratch;
  unsigned long long room;
  Index count, n;
};
// Finds the row from k on with the greatest element in column k. `pivot` is in shared memory.
__device__ inline void find_pivot(const double* a, Index n, Index k, Index& pivot) {
  pivot = k;
  for (Index row = k + 1; row < n; ++row)
    if (fabs(a[row * n + k]) > fabs(a[pivot * n + k])) pivot = row;
}
// All threads of the block eliminate matrix `a`. Returns its determinant in all of them.
template <class Config>
__device__ inline double eliminate(double* a, Index n) {
  __shared__ Index pivot;
  const Index thread = (Index)threadIdx.x;
  double result = 1;
  for (Index k = 0; k < n; ++k) {
    __syncthreads();
    if (thread == 0) find_pivot(a, n, k, pivot);
    __syncthreads();
    const Index other = pivot;
    const double head = a[other * n + k];
    result *= other == k ? head : -head;
    // All threads take this branch together.
    if (head == 0) return 0;
    __syncthreads();
    if (other != k)
      for (Index c = k + thread; c < n; c += Config::kThreads) {
        const double upper = a[k * n + c];
        a[k * n + c] = a[other * n + c];
        a[other * n + c] = upper;
      }
    __syncthreads();
    const Index rest = n - k - 1;
    for (Index i = thread; i < rest * rest; i += Config::kThreads) {
      const Index row = k + 1 + i / rest, c = k + 1 + i % rest;
      a[row * n + c] -= a[row * n + k] / head * a[k * n + c];
    }
  }
  return result;
}
// One block has each matrix.
template <class Config>
__device__ inline void find_determinants(const DeterminantArguments<Config>& all) {
  double* const a = all.scratch + (unsigned long long)blockIdx.x * all.room;
  const Index elements = all.n * all.n;
  for (Index matrix = (Index)blockIdx.x; matrix < all.count; matrix += (Index)gridDim.x) {
    __syncthreads();  // the previous matrix has been read
    for (Index i = (Index)threadIdx.x; i < elements; i += Config::kThreads)
      a[i] = (double)load(all.x[matrix * elements + i]);
    const double result = eliminate<Config>(a, all.n);
    if (threadIdx.x == 0) all.y[matrix] = store<typename Config::Element>((float)result);
  }
}
