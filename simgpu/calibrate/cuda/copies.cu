// Asynchronous copies from L2 into shared memory.

#define COPY16(to, from) \
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory")
#define COMMIT asm volatile("cp.async.commit_group;" ::: "memory");
#define WAIT(n) asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");

// Each thread asks for `PER` times 16 bytes and waits for them, `steps` times; `issue` is 1 to
// report only the cycles in which they are issued.
KERNEL cp_async(int* out, const uint4* data, int steps, int issue) {
  extern __shared__ uint4 tile[];
  const uint4* own = data + (size_t)blockIdx.x * 65536;
  long long issuing = 0;
  u32 to = shared_address(tile) + threadIdx.x * 16;
  BEGIN
  for (int s = 0; s < steps; s++) {
    long long a = clock64();
#pragma unroll
    for (int k = 0; k < PER; k++)
      COPY16(to + k * blockDim.x * 16, own + ((s & 7) * PER + k) * blockDim.x + threadIdx.x);
    issuing += clock64() - a;
    COMMIT WAIT(0)
    __syncthreads();
  }
  END
  if (issue && threadIdx.x == 0) out[blockIdx.x] = (int)issuing;
}

// Two groups in flight: throughput.
KERNEL cp_async_stream(int* out, const uint4* data, int steps) {
  extern __shared__ uint4 tile[];
  const uint4* own = data + (size_t)blockIdx.x * 65536;
  u32 to = shared_address(tile) + threadIdx.x * 16;
  BEGIN
  for (int s = 0; s < steps; s++) {
#pragma unroll
    for (int k = 0; k < PER; k++)
      COPY16(to + ((s % 3) * PER + k) * blockDim.x * 16,
             own + ((s & 7) * PER + k) * blockDim.x + threadIdx.x);
    COMMIT WAIT(2)
    __syncthreads();
  }
  WAIT(0)
  END
}

#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ void bulk(u32 to, const void* from, u32 bytes, u32 bar) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes));
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
      "l"(from), "r"(bytes), "r"(bar) : "memory");
}
__device__ __forceinline__ void wait_phase(u32 bar, u32 phase) {
  asm volatile("{\n.reg .pred p;\nagain:\nmbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n"
               "@!p bra again;\n}" ::"r"(bar), "r"(phase) : "memory");
}
// One thread keeps `FLIGHT` bulk copies of `bytes` in flight, `steps` of them.
KERNEL tma(int* out, const char* data, int steps, int bytes) {
  extern __shared__ __align__(128) char bulks[];
  __shared__ __align__(8) u64 bars[FLIGHT];
  const char* own = data + (size_t)blockIdx.x * 1048576;
  if (threadIdx.x == 0) {
    for (int i = 0; i < FLIGHT; i++) mbarrier_init(shared_address(bars + i), 1);
    asm volatile("fence.proxy.async.shared::cta;");
    long long begin = clock64();
    for (int s = 0; s < steps + FLIGHT; s++) {
      u32 slot = s % FLIGHT, bar = shared_address(bars + slot);
      if (s >= FLIGHT) wait_phase(bar, ((s / FLIGHT) - 1) & 1);
      if (s < steps) bulk(shared_address(bulks) + slot * bytes, own + (s & 15) * bytes, bytes, bar);
    }
    out[blockIdx.x] = (int)(clock64() - begin);
  }
}
#endif
