// Products on the tensor cores, fp16 in and fp32 out.

// Beside each mma.sync a warp issues BESIDE instructions of its own.
KERNEL mma_sync(int* out, int steps) {
  float d[CHAINS][4], x[CHAINS], y = threadIdx.x;
  u32 a = threadIdx.x, b = threadIdx.x + 1;
#pragma unroll
  for (int k = 0; k < CHAINS; k++) { x[k] = k; for (int i = 0; i < 4; i++) d[k][i] = 0; }
  BEGIN
#pragma unroll 1
  for (int s = 0; s < steps; s++)
#pragma unroll
    for (int k = 0; k < CHAINS; k++) {
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%5,%5}, "
          "{%0,%1,%2,%3};"
          : "+f"(d[k][0]), "+f"(d[k][1]), "+f"(d[k][2]), "+f"(d[k][3]) : "r"(a), "r"(b));
#pragma unroll
      for (int i = 0; i < BESIDE; i++) asm volatile("fma.rn.f32 %0, %0, %1, %1;" : "+f"(x[k]) : "f"(y));
    }
  float sum = 0;
#pragma unroll
  for (int k = 0; k < CHAINS; k++) sum += d[k][0] + d[k][3] + x[k];
  END
  USE((int)sum)
}

#ifdef PRODUCT
__device__ __forceinline__ u64 descriptor(const void* p) {  // K-major, 128-byte swizzle
  return ((u64)(shared_address(p) >> 4) & 0x3fff) | (1ull << 16) | (64ull << 32) | (1ull << 62);
}
// Each warpgroup issues `PER` products of 64×N×16, commits them and waits.
KERNEL wgmma(int* out, int steps) {
  extern __shared__ __align__(1024) u32 tiles[];
  for (int i = threadIdx.x; i < 12288; i += blockDim.x) tiles[i] = 0x2c002e00 + (i & 0x00ff00ff);
  asm volatile("fence.proxy.async.shared::cta;");
  int group = threadIdx.x / 128;
  u64 a = descriptor((char*)tiles + 32768 + group * 8192), b = descriptor(tiles);
  u32 r = 0x2c002e00 + threadIdx.x;
  float d[N / 2];
#pragma unroll
  for (int i = 0; i < N / 2; i++) d[i] = 0;
  BEGIN
#pragma unroll 1
  for (int s = 0; s < steps; s++) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int k = 0; k < PER; k++) { PRODUCT; }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < N / 2; i++) sum += d[i];
  END
  USE((int)sum)
}
#endif
