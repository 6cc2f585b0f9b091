// Latencies and bandwidths of HBM, L2 and shared memory.

// One thread follows a ring of indices from `start` on: `steps` dependent loads.
KERNEL chase(int* out, const u32* ring, int start, int steps) {
  u32 at = start;
  for (int i = 0; i < 64; i++) asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(at) : "l"(ring + at));
  long long begin = clock64();
  for (int i = 0; i < steps; i++)
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(at) : "l"(ring + at) : "memory");
  USE(at)
  out[blockIdx.x] = (int)(clock64() - begin) | (at & 0x80000000u);
}

// Every CTA reads `rounds` times the whole of `n16` 16-byte words, from a place of its own on.
KERNEL read_all(int* out, const uint4* data, int n16, int rounds) {
  u32 sum = 0;
  int step = gridDim.x * blockDim.x, at = blockIdx.x * blockDim.x + threadIdx.x;
  BEGIN
  for (int r = 0; r < rounds; r++) {
    int i = at;
    for (; i + 3 * step < n16; i += 4 * step) {
      uint4 a = load16(data + i), b = load16(data + i + step);
      uint4 c = load16(data + i + 2 * step), d = load16(data + i + 3 * step);
      sum += a.x ^ b.y ^ c.z ^ d.w;
    }
    for (; i < n16; i += step) sum += load16(data + i).x;
    at = (at + blockDim.x * 37) % step;  // another SM's part: L1 and neighbours cannot help
  }
  USE(sum)
  END
}

// One CTA an SM reads its own small region again and again from L2.
KERNEL read_own(int* out, const uint4* data, int n16, int rounds) {
  const uint4* own = data + (size_t)blockIdx.x * n16;
  u32 sum = 0;
  BEGIN
  for (int r = 0; r < rounds; r++)
    for (int i = threadIdx.x; i + 3 * blockDim.x < n16; i += 4 * blockDim.x) {
      uint4 a = load16(own + i), b = load16(own + i + blockDim.x);
      uint4 c = load16(own + i + 2 * blockDim.x), d = load16(own + i + 3 * blockDim.x);
      sum += a.x ^ b.y ^ c.z ^ d.w;
    }
  USE(sum)
  END
}

KERNEL write_all(int* out, uint4* data, int n16) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n16; i += gridDim.x * blockDim.x)
    data[i] = make_uint4(i, i, i, i);
}

KERNEL copy_all(int* out, const uint4* from, uint4* to, int n16) {
  int step = gridDim.x * blockDim.x;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n16; i += 4 * step) {
    uint4 v[4];
#pragma unroll
    for (int k = 0; k < 4; k++) if (i + k * step < n16) v[k] = load16(from + i + k * step);
#pragma unroll
    for (int k = 0; k < 4; k++) if (i + k * step < n16) to[i + k * step] = v[k];
  }
}

KERNEL shared_chase(int* out, int steps) {
  __shared__ u32 ring[1024];
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) ring[i] = shared_address(ring) + ((i * 4 + 132) & 4095);
  __syncthreads();
  u32 at = shared_address(ring);
  long long begin = clock64();
#pragma unroll 16
  for (int i = 0; i < steps; i++) asm volatile("ld.shared.u32 %0, [%0];" : "+r"(at));
  USE(at)
  out[blockIdx.x] = (int)(clock64() - begin);
}

KERNEL shared_read(int* out, int steps) {
  __shared__ uint4 words[2048];
  for (int i = threadIdx.x; i < 2048; i += blockDim.x) words[i] = make_uint4(i, i, i, i);
  u32 sum = 0, at = shared_address(words) + (threadIdx.x & 1023) * 16;
  BEGIN
#pragma unroll 8
  for (int i = 0; i < steps; i++) {
    uint4 v;
    asm volatile("ld.volatile.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at + (i & 7) * 2048));
    sum += v.x ^ v.w;
  }
  USE(sum)
  END
}

// The CTA writes its tile by plain stores.
KERNEL shared_write(int* out, int steps) {
  __shared__ uint4 words[2048];
  u32 at = shared_address(words) + (threadIdx.x & 1023) * 16;
  BEGIN
#pragma unroll 8
  for (int i = 0; i < steps; i++)
    asm volatile("st.shared.v4.u32 [%0], {%1,%1,%1,%1};" ::"r"(at + (i & 7) * 2048), "r"(i));
  END
  USE(words[threadIdx.x].x)
}

// Every CTA reads all of the same data, beginning `apart` sixteenths after the CTA before it.
KERNEL read_same(int* out, const uint4* data, int n16, int rounds, int apart) {
  u32 sum = 0;
  int start = (blockIdx.x * apart % 16) * (n16 / 16);
  BEGIN
  for (int r = 0; r < rounds; r++)
    for (int i = threadIdx.x; i < n16; i += 2 * blockDim.x) {
      int at = start + i, next = at + blockDim.x;
      uint4 a = load16(data + (at < n16 ? at : at - n16));
      uint4 b = load16(data + (next < n16 ? next : next - n16));
      sum += a.x ^ b.y;
    }
  USE(sum)
  END
}
