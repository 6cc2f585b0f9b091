// Barriers, fences, atomics, and kernels that do nothing.

KERNEL bar_sync(int* out, int steps) {
  BEGIN
  for (int i = 0; i < steps; i++) asm volatile("bar.sync 0;" ::: "memory");
  END
}

KERNEL fence_async(int* out, int steps) {
#if __CUDA_ARCH__ >= 900
  __shared__ u32 word[1024];
  BEGIN
  for (int i = 0; i < steps; i++) {
    word[threadIdx.x] = i;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  END
  USE(word[threadIdx.x ^ 1])
#endif
}

// All threads arrive on a barrier of their count and wait for its phase.
KERNEL mbarrier_round(int* out, int steps) {
#if __CUDA_ARCH__ >= 900
  __shared__ __align__(8) u64 word;
  u32 bar = shared_address(&word);
  if (threadIdx.x == 0) mbarrier_init(bar, blockDim.x);
  BEGIN
  for (int i = 0; i < steps; i++) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(bar) : "memory");
    asm volatile("{\n.reg .pred p;\nagain:\nmbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n"
                 "@!p bra again;\n}" ::"r"(bar), "r"(i & 1) : "memory");
  }
  END
#endif
}

// A returning atomic is waited for; a reduction is not. `spread` words between threads' addresses.
KERNEL atomic_return(int* out, int* words, int steps, int spread) {
  int* own = words + (size_t)(blockIdx.x * blockDim.x + threadIdx.x) * spread;
  int v = 0;
  BEGIN
  for (int i = 0; i < steps; i++) v = atomicAdd(own, v | 1);
  USE(v)
  END
}
KERNEL atomic_reduce(int* out, float* words, int steps, int spread) {
  float* own = words + (size_t)(blockIdx.x * blockDim.x + threadIdx.x) * spread;
  BEGIN
#pragma unroll 8
  for (int i = 0; i < steps; i++) asm volatile("red.global.add.f32 [%0], %1;" ::"l"(own), "f"(1.0f) : "memory");
  __threadfence();
  END
}

KERNEL nothing(int* out) {}
