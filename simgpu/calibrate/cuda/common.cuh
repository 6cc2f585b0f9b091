// Shared by all kernels. A kernel writes the cycles of each CTA to out[blockIdx.x].
typedef unsigned int u32;
typedef unsigned long long u64;

#define KERNEL extern "C" __global__ void

__device__ __forceinline__ u32 smid() {
  u32 s;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(s));
  return s;
}
__device__ __forceinline__ u64 nanoseconds() {
  u64 t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}
__device__ __forceinline__ u32 shared_address(const void* p) {
  return (u32)__cvta_generic_to_shared(p);
}
// All threads of the CTA begin and end together; thread 0 reports.
#define BEGIN __syncthreads(); long long begin_ = clock64();
#define END __syncthreads(); if (threadIdx.x == 0) out[blockIdx.x] = (int)(clock64() - begin_);
// A use of v that the compiler cannot prove never happens.
#define USE(v) if ((v) == 0x7fedcba9) out[blockIdx.x] = 0;

__device__ __forceinline__ uint4 load16(const void* p) {  // from L2, past L1
  uint4 v;
  asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}
__device__ __forceinline__ void mbarrier_init(u32 bar, u32 count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(bar), "r"(count));
}
